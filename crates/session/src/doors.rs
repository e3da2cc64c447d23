//! The two ways out of a sandbox: to models, and to everything else that is allowed.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use agents::PlacedFile;
use base::EGRESS_PORT;
use egress::{CERTIFICATES, DnsSockets, Egress, LivePolicy, ProxyCredentials};
use gateway::{GatewayIdentity, SessionToken};
use policy::EffectivePolicy;
use sandbox::{Sandbox, SandboxError, SandboxPort};
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};

use crate::SessionError;
use crate::host::Host;
use crate::plan::Plan;
use crate::recorder::Recorder;

/// What is made for one sandbox, so that its ways out are known to be its own.
pub(crate) struct Keys {
    /// What its agent shows to the gateway.
    pub(crate) token: String,
    /// What the proxy is given for it.
    outfit: ProxyCredentials,
}

impl Keys {
    /// New ones, for a sandbox of `plan` that is still to be made.
    pub(crate) fn make(egress: &Egress, plan: &Plan) -> Result<Self, SessionError> {
        let outfit = egress.outfit(&plan.policy).map_err(|error| {
            let step = "give the egress proxy what the policy asks for".to_owned();
            SessionError::Sandbox(SandboxError::Create { step, source: io::Error::other(error) })
        })?;
        let (_, token) = SessionToken::issue();
        Ok(Self { token, outfit })
    }

    /// What is placed in the sandbox.
    pub(crate) fn files(&self) -> Option<PlacedFile> {
        let authority = self.outfit.authority.as_ref()?;
        Some(PlacedFile { path: CERTIFICATES.to_owned(), content: authority.bundle() })
    }
}

/// The two ways out of a sandbox, while somebody serves them.
#[derive(Default)]
pub(crate) struct Doors {
    /// To models.
    models: Option<gateway::GatewayAttachment>,
    /// To everything else that is allowed, and what that is now.
    egress: Option<(egress::EgressAttachment, LivePolicy)>,
    /// What the second was given for this sandbox.
    outfit: ProxyCredentials,
}

impl Doors {
    /// Serves what `sandbox` listens on, for the session of `plan`.
    pub(crate) fn open(
        host: &Host,
        plan: &Plan,
        recorder: &Recorder,
        sandbox: &dyn Sandbox,
        keys: &Keys,
    ) -> Result<Self, SessionError> {
        let models = attach_models(host, plan, recorder, sandbox, &keys.token)?;
        let policy = plan.policy_at(host.shelf.now_unix_secs());
        let egress = attach_egress(&host.egress, policy, plan, recorder, sandbox, keys)?;
        Ok(Self { models, egress, outfit: keys.outfit.clone() })
    }

    /// Serves the egress port of `sandbox` alone: its commands reach no model.
    pub(crate) fn open_egress(
        egress: &Egress,
        plan: &Plan,
        recorder: &Recorder,
        sandbox: &dyn Sandbox,
        keys: &Keys,
    ) -> Result<Self, SessionError> {
        let egress = attach_egress(egress, (*plan.policy).clone(), plan, recorder, sandbox, keys)?;
        Ok(Self { models: None, egress, outfit: keys.outfit.clone() })
    }

    /// Adds the variables by which a program inside finds the way to everything but models.
    pub(crate) fn tell(&self, environment: &mut BTreeMap<String, String>) {
        if self.egress.is_some() {
            self.outfit.tell(environment, (Ipv4Addr::LOCALHOST, EGRESS_PORT).into());
        }
    }

    /// Exchanges what may be reached: at once, also for what is under way.
    pub(crate) fn exchange(&self, policy: EffectivePolicy) {
        if let Some((_, live)) = &self.egress {
            live.replace(policy);
        }
    }

    /// Closes both; returns when what was under way is settled and on record.
    pub(crate) async fn close(self) {
        if let Some(models) = self.models {
            models.close().await;
        }
        if let Some((egress, _)) = self.egress {
            egress.close().await;
        }
    }
}

fn attach_models(
    host: &Host,
    plan: &Plan,
    recorder: &Recorder,
    sandbox: &dyn Sandbox,
    token: &str,
) -> Result<Option<gateway::GatewayAttachment>, SessionError> {
    let Some(listener) = sandbox.take_listener(SandboxPort::Models) else { return Ok(None) };
    let options = &plan.options;
    let upstream = match (&options.replay, &plan.upstream) {
        (Some(rerun), _) => rerun.upstream.clone(),
        (None, Some(name)) => host.upstreams.find(name)?,
        (None, None) => host.upstream.clone(),
    };
    let identity = GatewayIdentity {
        session: plan.id.clone(),
        token: SessionToken::of(token),
        account: options.account.as_deref().unwrap_or(plan.id.as_str()).into(),
        user: options.user.as_deref().map(Into::into),
        key: None,
        agent: Some(plan.agent.as_str().into()),
        run: plan.id.as_str().into(),
        attempt: plan.epoch,
        journal: recorder.journal().clone(),
        bodies: host.shelf.bodies(host.limits.compress),
        turn: recorder.turn.clone(),
        upstream,
        policy: Some(plan.policy.clone()),
        budgets: budgets(&plan.policy),
        limits: host.limits.clone(),
    };
    let attached = host.gateway.attach(listener, identity);
    attached.map(Some).map_err(|source| not_served("the model gateway's port", source))
}

fn attach_egress(
    egress: &Egress,
    policy: EffectivePolicy,
    plan: &Plan,
    recorder: &Recorder,
    sandbox: &dyn Sandbox,
    keys: &Keys,
) -> Result<Option<(egress::EgressAttachment, LivePolicy)>, SessionError> {
    let Some(listener) = sandbox.take_listener(SandboxPort::Egress) else { return Ok(None) };
    let turn = recorder.turn.clone();
    let live = LivePolicy::new(policy);
    let identity = egress::EgressIdentity {
        session: plan.id.clone(),
        journal: recorder.journal().clone(),
        turn: Arc::new(move || turn.get()),
        policy: live.clone(),
        outfit: keys.outfit.clone(),
        names: sandbox.take_names().map(|(streams, datagrams)| DnsSockets { datagrams, streams }),
        limits: egress::EgressLimits::default(),
    };
    let attached = egress.attach(listener, identity);
    attached.map(|egress| Some((egress, live))).map_err(|source| not_served("the egress port", source))
}

/// What the policy lets a session spend on models.
fn budgets(policy: &EffectivePolicy) -> Vec<UsageLimit> {
    let models = policy.models();
    let of_session = |name, most| UsageLimit { name, scope: LimitScope::Session, window: LimitWindow::Ever, most };
    vec![
        of_session("models.budget_usd", LimitAmount::Picos(models.budget_picos)),
        of_session("models.max_requests", LimitAmount::Requests(models.max_requests)),
    ]
}

fn not_served(port: &str, source: io::Error) -> SessionError {
    SessionError::Sandbox(SandboxError::Create { step: format!("serve {port}"), source })
}
