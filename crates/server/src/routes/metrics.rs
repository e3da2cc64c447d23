//! Metrics in the Prometheus text format.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base::LimitHits;
use http::header::CONTENT_TYPE;
use session::DriftByAgent;

use crate::error::ApiError;
use crate::state::AppState;

/// The content type of the Prometheus text format.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`: returns network counters since the server started, and counts of agent output that was not understood.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "get_metrics",
    tag = "meta",
    responses((status = 200, description = "Metrics in the Prometheus text format.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn show(State(state): State<AppState>) -> Result<Response, ApiError> {
    let egress = state.sessions.egress_totals();
    let attempts = "Network connection attempts by policy verdict.";
    let failed = "Allowed connections that failed or were closed by the proxy.";
    let bytes = "Bytes through the egress proxy, by direction.";
    let text = [
        counter(
            "viv_egress_attempts_total",
            attempts,
            &[("verdict=\"allowed\"", egress.allowed), ("verdict=\"denied\"", egress.denied)],
        ),
        counter("viv_egress_failed_total", failed, &[("", egress.failed)]),
        counter(
            "viv_egress_bytes_total",
            bytes,
            &[("direction=\"sent\"", egress.bytes_sent), ("direction=\"received\"", egress.bytes_received)],
        ),
        limits(),
        drift(&state.sessions.drift()?),
    ]
    .concat();
    Ok(([(CONTENT_TYPE, KIND)], text).into_response())
}

/// Returns how often each limit of the host budget was reached.
fn limits() -> String {
    let help = "Times that a limit of the host budget was reached.";
    let values: Vec<_> = LimitHits::read().map(|(limit, hits)| (format!("limit=\"{}\"", limit.key()), hits)).collect();
    let values: Vec<_> = values.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
    counter("viv_host_limit_reached_total", help, &values)
}

/// Returns the counts of agent output that was not understood, for agent versions that have any.
fn drift(counts: &DriftByAgent) -> String {
    let help = "Agent output that was not understood, by agent version.";
    let mut values = Vec::new();
    for (agent, versions) in counts {
        for (version, drift) in versions {
            let labels = |kind| format!("agent=\"{agent}\",version=\"{version}\",kind=\"{kind}\"");
            values.extend([(labels("unparsed"), drift.unparsed), (labels("unknown"), drift.unknown)]);
        }
    }
    let values: Vec<_> = values.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
    counter("viv_agent_drift_total", help, &values)
}

/// Returns one counter family with its labelled values.
fn counter(name: &str, help: &str, values: &[(&str, u64)]) -> String {
    let line = |(labels, value): &(&str, u64)| match *labels {
        "" => format!("{name} {value}\n"),
        labels => format!("{name}{{{labels}}} {value}\n"),
    };
    let lines: String = values.iter().map(line).collect();
    format!("# HELP {name} {help}\n# TYPE {name} counter\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::counter;

    #[test]
    fn counter_family_is_in_prometheus_text_format() {
        let text = counter("a_total", "Things.", &[("kind=\"x\"", 1), ("kind=\"y\"", 2)]);
        assert_eq!(
            text,
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{kind=\"x\"} 1\na_total{kind=\"y\"} 2\n"
        );
    }
}
