//! A program inside that requires a key: it finds a placeholder, and its host receives the real key.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use base::EGRESS_PORT;
use egress::{Egress, EgressCredential};
use libtest_mimic::Trial;
use policy::{BaseLayer, CeilingLayer, PolicySource};
use sandbox::ExecSpec;
use secret::Secret;

use crate::attack::Walls;
use crate::stage::Stage;

const POLICY: &str = "version: 1\nnet:\n  enabled: true\n  allowlist: [\"keyed.example.com:80\"]\n  \
                      inject: [\"keyed.example.com:80 X-Key={api-key}\"]\n";

/// An ordinary curl command. The host echoes the request.
const LINE: &str = "curl -sS -H \"X-Key: ${API_KEY:?is not set}\" -H \"X-Other: $API_KEY\" http://keyed.example.com/; echo; echo $PATH";

pub(crate) fn trial(stage: Arc<Stage>) -> Trial {
    Trial::test("a_program_that_wants_a_key_works_with_a_placeholder", move || {
        let key = Secret::new(&stage.secret);
        let mut env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        outfit(&key).add_to_environment(&mut env, (Ipv4Addr::LOCALHOST, EGRESS_PORT).into());
        let scene = stage.scene();
        let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
        let command = ["/bin/sh", "-c", LINE].map(str::to_owned).to_vec();
        let spec = ExecSpec { command, env, ..ExecSpec::default() };
        let run = || stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run");
        let (ran, _) = super::before_the_internet(&stage, &*sandbox, "ours", POLICY, run);
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        let sent = |header: &str| said.lines().find_map(|line| line.strip_prefix(header)).unwrap_or_default().trim();
        let stars = "*".repeat(stage.secret.len());
        // The echoed key is redacted by stars; the placeholder may appear anywhere.
        if sent("x-key:") != stars || sent("x-other:") != key.placeholder() || said.contains(&stage.secret) {
            return Err(said.into());
        }
        Ok(())
    })
}

/// Returns the proxy credentials of a session with that policy.
fn outfit(key: &Secret) -> egress::ProxyCredentials {
    let base = BaseLayer::read(&PolicySource::new("placeholder", POLICY)).expect("policy");
    let policy = policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]);
    let key = key.clone();
    let egress =
        Egress::default().with_credentials(Arc::new(move |name| Ok(EgressCredential::from_name(name, key.clone()))));
    egress.proxy_credentials(&policy).expect("outfit")
}
