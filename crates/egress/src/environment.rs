//! The environment variables that configure programs inside for the proxy.

use std::net::SocketAddr;

/// Returns the proxy variables for a sandbox whose proxy listens on `address`, as seen inside.
///
/// Programs differ, so each name is set in upper and lower case. The sandbox's own loopback needs no proxy, and the
/// proxy would refuse it.
pub(crate) fn proxy_environment(address: SocketAddr) -> Vec<(&'static str, String)> {
    let proxy = format!("http://{address}");
    let direct = "localhost,127.0.0.1,::1".to_owned();
    let mut variables = Vec::new();
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        variables.push((name, proxy.clone()));
    }
    variables.extend([("NO_PROXY", direct.clone()), ("no_proxy", direct)]);
    // Node.js reads the variables above only with this setting.
    variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    variables
}

/// Returns the variables that name `ca_bundle`, the file of trusted certificates. Each program reads another one.
pub(crate) fn trust_environment(ca_bundle: &str) -> Vec<(&'static str, String)> {
    let names = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "NPM_CONFIG_CAFILE",
        "DENO_CERT",
        "AWS_CA_BUNDLE",
    ];
    names.into_iter().map(|name| (name, ca_bundle.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_is_set_except_for_the_loopback_of_the_gateway() {
        let variables = proxy_environment(([127, 0, 0, 1], 18081).into());
        let value = |name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str());
        assert_eq!(value("https_proxy"), Some("http://127.0.0.1:18081"));
        assert!(value("NO_PROXY").unwrap().split(',').any(|host| host == "127.0.0.1"));
    }
}
