//! The two listeners of a sandbox: the model gateway and the egress proxy.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use agents::PlacedFile;
use base::{ByteBudget, EGRESS_PORT};
use egress::{DnsSockets, Egress, EgressLimits, LivePolicy, ProxyCredentials};
use gateway::{GatewayIdentity, SessionToken};
use policy::EffectivePolicy;
use sandbox::{Sandbox, SandboxError, SandboxPort};
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};

use crate::lifecycle::{Recorder, SessionHost, SessionPlan};
use crate::{HostBudget, SessionError};

/// Credentials that identify one sandbox at its listeners.
pub(crate) struct SandboxCredentials {
    /// The session token that the agent sends to the gateway.
    pub(crate) token: String,
    /// The credentials for the egress proxy.
    proxy: ProxyCredentials,
}

impl SandboxCredentials {
    /// Issues new credentials for a sandbox of `plan`.
    pub(crate) fn issue(egress: &Egress, plan: &SessionPlan) -> Result<Self, SessionError> {
        let proxy = egress.proxy_credentials(&plan.policy).map_err(|error| {
            let step = "create the credentials of the egress proxy".to_owned();
            SessionError::Sandbox(SandboxError::Create { step, source: io::Error::other(error) })
        })?;
        let (_, token) = SessionToken::issue();
        Ok(Self { token, proxy })
    }

    /// Returns the files to place in the sandbox: certificates, and settings of package tools.
    pub(crate) fn files(&self) -> Vec<PlacedFile> {
        self.proxy.files().into_iter().map(|(path, content)| PlacedFile { path, content }).collect()
    }
}

/// The two listeners of a running sandbox.
#[derive(Default)]
pub(crate) struct Listeners {
    /// The gateway for model calls.
    models: Option<gateway::GatewayAttachment>,
    /// The egress proxy for all other traffic, and its current policy.
    egress: Option<(egress::EgressAttachment, LivePolicy)>,
    /// The proxy credentials of this sandbox.
    proxy: ProxyCredentials,
}

impl Listeners {
    /// Serves the listeners of `sandbox` for the session of `plan`.
    pub(crate) fn open(
        host: &SessionHost,
        plan: &SessionPlan,
        recorder: &Recorder,
        sandbox: &dyn Sandbox,
        credentials: &SandboxCredentials,
    ) -> Result<Self, SessionError> {
        let budget = SessionBudget::new(&host.config.budget);
        let models = attach_models(host, plan, recorder, sandbox, (&credentials.token, &budget))?;
        let policy = plan.policy_at(host.store.now_unix_secs());
        let egress = attach_egress(&host.config.egress, policy, plan, recorder, sandbox, (credentials, budget))?;
        Ok(Self { models, egress, proxy: credentials.proxy.clone() })
    }

    /// Serves only the egress port of `sandbox`; its commands cannot reach a model.
    pub(crate) fn open_egress(
        egress: &Egress,
        plan: &SessionPlan,
        recorder: &Recorder,
        sandbox: &dyn Sandbox,
        credentials: &SandboxCredentials,
        budget: &HostBudget,
    ) -> Result<Self, SessionError> {
        let with = (credentials, SessionBudget::new(budget));
        let egress = attach_egress(egress, (*plan.policy).clone(), plan, recorder, sandbox, with)?;
        Ok(Self { models: None, egress, proxy: credentials.proxy.clone() })
    }

    /// Adds the proxy variables that programs inside the sandbox read.
    pub(crate) fn add_variables(&self, environment: &mut BTreeMap<String, String>) {
        if self.egress.is_some() {
            self.proxy.add_to_environment(environment, (Ipv4Addr::LOCALHOST, EGRESS_PORT).into());
        }
    }

    /// Replaces the network policy. Open connections that the new policy denies are closed.
    pub(crate) fn replace_policy(&self, policy: EffectivePolicy) {
        if let Some((_, live_policy)) = &self.egress {
            live_policy.replace(policy);
        }
    }

    /// Closes both listeners. Returns when running calls are settled and recorded.
    pub(crate) async fn close(self) {
        if let Some(models) = self.models {
            models.close().await;
        }
        if let Some((egress, _)) = self.egress {
            egress.close().await;
        }
    }
}

/// The part of the host budget that the listeners of one session share.
struct SessionBudget {
    in_flight: ByteBudget,
    egress: EgressLimits,
}

impl SessionBudget {
    fn new(budget: &HostBudget) -> Self {
        Self { in_flight: budget.in_flight(), egress: budget.egress_limits() }
    }
}

fn attach_models(
    host: &SessionHost,
    plan: &SessionPlan,
    recorder: &Recorder,
    sandbox: &dyn Sandbox,
    (token, budget): (&str, &SessionBudget),
) -> Result<Option<gateway::GatewayAttachment>, SessionError> {
    let Some(listener) = sandbox.take_listener(SandboxPort::Models) else { return Ok(None) };
    let options = &plan.options;
    let upstream = match (&options.replay, &plan.upstream) {
        (Some(replay), _) => replay.upstream.clone(),
        (None, Some(name)) => host.config.upstreams.find(name)?,
        (None, None) => host.config.upstream.clone(),
    };
    let identity = GatewayIdentity {
        session: plan.id.clone(),
        token: SessionToken::from_text(token),
        account: options.account.as_deref().unwrap_or(plan.id.as_str()).into(),
        user: options.user.as_deref().map(Into::into),
        key: None,
        agent: Some(plan.agent.as_str().into()),
        run: plan.id.as_str().into(),
        attempt: plan.epoch,
        journal: recorder.journal().clone(),
        bodies: host.store.bodies(recorder.storage().cloned(), host.config.gateway_limits.compress),
        turn: Arc::new(recorder.current_turn()),
        upstream,
        policy: Some(plan.policy.clone()),
        budgets: budgets(&plan.policy),
        limits: host.config.budget.gateway_limits(host.config.gateway_limits.clone()),
        in_flight: budget.in_flight.clone(),
    };
    let attached = host.config.gateway.attach(listener, identity);
    attached.map(Some).map_err(|source| listener_error("the model gateway's port", source))
}

fn attach_egress(
    egress: &Egress,
    policy: EffectivePolicy,
    plan: &SessionPlan,
    recorder: &Recorder,
    sandbox: &dyn Sandbox,
    (credentials, budget): (&SandboxCredentials, SessionBudget),
) -> Result<Option<(egress::EgressAttachment, LivePolicy)>, SessionError> {
    let Some(listener) = sandbox.take_listener(SandboxPort::Egress) else { return Ok(None) };
    let turn = recorder.current_turn();
    let live_policy = LivePolicy::new(policy);
    let identity = egress::EgressIdentity {
        session: plan.id.clone(),
        journal: recorder.journal().clone(),
        turn: Arc::new(move || turn.get()),
        policy: live_policy.clone(),
        credentials: credentials.proxy.clone(),
        dns: sandbox.take_dns_sockets().map(|(streams, datagrams)| DnsSockets { datagrams, streams }),
        limits: budget.egress,
        in_flight: budget.in_flight,
    };
    let attached = egress.attach(listener, identity);
    attached.map(|egress| Some((egress, live_policy))).map_err(|source| listener_error("the egress port", source))
}

/// Returns the budgets that the policy sets for a session's model calls.
fn budgets(policy: &EffectivePolicy) -> Vec<UsageLimit> {
    let models = policy.models();
    let session_limit =
        |name, most| UsageLimit { name, scope: LimitScope::Session, window: LimitWindow::Ever, max: most };
    vec![
        session_limit("models.budget_usd", LimitAmount::Picos(models.budget_picos)),
        session_limit("models.max_requests", LimitAmount::Requests(models.max_requests)),
        session_limit("models.max_tokens", LimitAmount::Tokens(models.max_tokens)),
    ]
}

fn listener_error(port: &str, source: io::Error) -> SessionError {
    SessionError::Sandbox(SandboxError::Create { step: format!("serve {port}"), source })
}
