//! `--net packages`: real npm, pip and cargo install from the registry that the host's tools are configured for.
//!
//! The registry is in another network namespace (`tests/registry`), because the proxy never calls its own machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use testkit::{ProgramOutput, VivFixture};

use crate::fixture::{program, viv_fixture};

const HOSTS: &str = "127.0.0.1 localhost\n203.0.113.10 registry.example.com files.example.com other.example.com\n";
/// A token of the host, which no sandbox may see.
const CANARY: &str = "canary-5f0b2c";

/// A host whose tools use the test's registry.
struct Host {
    viv: VivFixture,
    /// Home directory, certificates and the scripts of the registry.
    home: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let (viv, home) = (viv_fixture(), tempfile::tempdir().unwrap());
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let [root, certificate, key] = certificates();
        for (name, text) in [("root.pem", root), ("certificate.pem", certificate), ("key.pem", key)] {
            write(name, &text);
        }
        write("hosts", HOSTS);
        write("serve.py", include_str!("../registry/serve.py"));
        write(
            ".npmrc",
            &format!(
                "registry=https://registry.example.com/npm/\n//registry.example.com/npm/:_authToken={CANARY}\ncafile={}\n",
                home.path().join("root.pem").display()
            ),
        );
        write("pip.conf", "[global]\nindex-url = https://registry.example.com/simple\n");
        write(
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"own\"\n[source.own]\nregistry = \"sparse+https://registry.example.com/index/\"\n",
        );
        viv.configure(&format!("[egress]\nroots = \"{}\"\n", home.path().join("root.pem").display()));
        Self { viv, home }
    }

    /// Runs `viv` in a network in which only the registry exists.
    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        let home = self.home.path();
        for pipe in ["ready", "go"] {
            let _ = std::fs::remove_file(home.join(pipe));
        }
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--net", "--mount"]);
        command.args(["sh", "-c", include_str!("../registry/network.sh"), "sh"]).arg(home);
        command.arg(program()).arg("--data-dir").arg(self.viv.data_dir()).args(arguments);
        command.current_dir(self.viv.workspace()).stdin(std::process::Stdio::null());
        let root = home.join("root.pem");
        for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO", "REQUESTS_CA_BUNDLE"] {
            command.env(name, &root);
        }
        for name in ["PIP_FIND_LINKS", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY", "npm_config_registry", "HTTPS_PROXY"] {
            command.env_remove(name);
        }
        command.env("HOME", home).env("CARGO_HOME", home.join(".cargo")).env("PIP_CONFIG_FILE", home.join("pip.conf"));
        command.env("RUSTUP_HOME", toolchain().join("../.."));
        ProgramOutput::from(command.output().unwrap())
    }

    /// Runs a shell line in a sandbox with open registries.
    fn exec(&self, line: &str) -> ProgramOutput {
        let policy = self.home.path().join("p.yaml");
        let paths = format!("[/usr, /bin, /lib, /lib64, /etc/alternatives, {}]", toolchain().display());
        let text = format!(
            "version: 1\nfs: {{workspace: overlay, read: {paths}}}\nenv: {{pass: []}}\ntools: {{allow: [\"*\"]}}\n\
             proc: {{memory: 2GiB, disk: 1GiB, nofile: 1024, pids: 256, timeout: 2m}}\n\
             degrade: {{cpus: none, memory: rlimit, pids: rlimit}}\n"
        );
        std::fs::write(&policy, text).unwrap();
        self.run(&["exec", "--policy", policy.to_str().unwrap(), "--net", "packages", "--", "sh", "-c", line])
    }

    fn requests(&self) -> String {
        std::fs::read_to_string(self.home.path().join("requests.log")).unwrap_or_default()
    }
}

/// Returns a root, a certificate of both hosts, and its key, as PEM.
fn certificates() -> [String; 3] {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_key = KeyPair::generate().unwrap();
    let root = params.self_signed(&root_key).unwrap().pem();
    let names = ["registry", "files", "other"].map(|name| format!("{name}.example.com"));
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(names.to_vec()).unwrap();
    // With the name of its issuer it would count as signed by itself.
    leaf.distinguished_name.push(DnType::CommonName, "registry.example.com");
    let leaf = leaf.signed_by(&key, &Issuer::new(params, root_key)).unwrap();
    [root, leaf.pem(), key.serialize_pem()]
}

/// Returns the directory of the Rust toolchain that runs this test.
fn toolchain() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    Path::new(&cargo).canonicalize().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

#[test]
fn npm_pip_and_cargo_install_from_the_configured_registries() {
    let host = Host::new();
    let write = |name: &str, text: &str| {
        let path = host.viv.workspace().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let needs = r#""dependencies": {"tiny-viv": "99.0.0"}"#;
    write("js/package.json", &format!("{{\"name\": \"p\", \"version\": \"1.0.0\", {needs}}}"));
    let lock = format!(
        r#"{{"name": "p", "version": "1.0.0", "lockfileVersion": 3, "packages": {{
            "": {{"name": "p", "version": "1.0.0", {needs}}},
            "node_modules/tiny-viv": {{"version": "99.0.0", "resolved": "https://files.example.com/npm-files/tiny-viv-99.0.0.tgz"}}}}}}"#
    );
    write("js/package-lock.json", &lock);
    write(
        "rust/Cargo.toml",
        "[package]\nname = \"p\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\ntiny-viv = \"99\"\n",
    );
    write("rust/src/lib.rs", "");
    let npm = host.exec("cd js && npm ci --no-audit --no-fund && node -e \"console.log(require('tiny-viv'))\"");
    assert!(npm.code == 0 && npm.stdout.ends_with("from the registry\n"), "{npm:?}\n{}", host.requests());
    let pip = host.exec(
        "python3 -m pip install --no-cache-dir --target /tmp/site tiny-viv && PYTHONPATH=/tmp/site python3 -c 'import tiny_viv; print(tiny_viv.WORD)'",
    );
    assert!(pip.code == 0 && pip.stdout.ends_with("from the registry\n"), "{pip:?}\n{}", host.requests());
    let path = toolchain().join("bin");
    let line = format!("cd rust && PATH={}:$PATH cargo fetch && ls $HOME/.cargo/registry/cache/*", path.display());
    let cargo = host.exec(&line);
    assert!(cargo.code == 0 && cargo.stdout.contains("tiny-viv-99.0.0.crate"), "{cargo:?}\n{}", host.requests());
}

#[test]
fn registries_are_only_read_and_other_hosts_stay_closed() {
    let host = Host::new();
    let put = host.exec("curl -sS -X PUT -d x https://registry.example.com/npm/tiny-viv");
    assert!(put.stdout.contains("viv: `registry.example.com` port 443 is not allowed"), "{put:?}");
    assert!(put.stdout.contains("net.packages opens package registries with GET and HEAD only"), "{put:?}");
    let post = host.exec("curl -sS -o /dev/null -w '%{http_code}' -d x https://files.example.com/x");
    assert_eq!(post.stdout, "403", "{post:?}");
    let other = host.exec("curl -sS https://other.example.com/npm/tiny-viv");
    assert!(other.code != 0 && other.stderr.contains("403"), "{other:?}");
    let requests = host.requests();
    assert!(!requests.contains("PUT") && !requests.contains("POST") && !requests.contains("other."), "{requests}");
    // The project cannot open them itself.
    std::fs::write(host.viv.workspace().join("sandbox.policy.yaml"), "version: 1\nnet: {packages: true}\n").unwrap();
    let refused = host.viv.command(&["exec", "--", "true"]).current_dir(host.viv.workspace()).output().unwrap();
    let refused = ProgramOutput::from(refused);
    assert!(refused.code != 0 && refused.stderr.contains("cannot set `net.packages` to `true`"), "{refused:?}");
}

#[test]
fn the_token_of_a_registry_is_sent_by_the_proxy_and_is_not_in_the_sandbox() {
    let host = Host::new();
    // A workspace may name other registries for the tools; they are not asked there.
    std::fs::write(host.viv.workspace().join(".npmrc"), "registry=https://other.example.com/\n").unwrap();
    let ran = host.exec("env; cat /viv/npmrc /.cargo/config.toml; curl -sS https://registry.example.com/npm/tiny-viv");
    assert!(ran.code == 0 && ran.stdout.contains("registry=https://registry.example.com/npm/\n"), "{ran:?}");
    assert!(!ran.stdout.contains(CANARY) && ran.stdout.contains("dist-tags"), "{ran:?}");
    let requests = host.requests();
    assert!(requests.contains(&format!("/npm/tiny-viv Bearer {CANARY}")), "{requests}");
    assert!(!requests.contains("other."), "{requests}");

    let told = host.run(&["policy", "explain", "balanced", "--net", "packages"]);
    for part in ["GET|HEAD registry.example.com:443/** (npm: ~/.npmrc", "GET|HEAD files.example.com:443/** ("] {
        assert!(told.stdout.contains(part), "{part}: {told:?}");
    }
    for origin in
        ["pip: pip.conf", "cargo: ~/.cargo/config.toml", "cargo: downloads", "npm: downloads", "pip: downloads"]
    {
        assert!(told.stdout.contains(origin), "{origin}: {told:?}");
    }
}

#[test]
fn one_more_host_is_allowed_unless_the_ceiling_denies_it() {
    let place = viv_fixture();
    let told = place.run(&["policy", "explain", "balanced", "--allow", "files.example.com"]);
    assert!(told.stdout.contains("Reachable hosts besides the model gateway: files.example.com:443."), "{told:?}");
    let denied = place.run(&["exec", "--allow", "169.254.169.254:80", "--", "true"]);
    assert!(denied.code == 125 && denied.stderr.contains("`--allow 169.254.169.254:80` has no effect"), "{denied:?}");
    let other =
        place.run(&["exec", "--allow", "files.example.com:80", "--", "curl", "-sS", "http://other.example.com/"]);
    assert!(other.stdout.contains("`other.example.com` port 80 is not allowed"), "{other:?}");
}
