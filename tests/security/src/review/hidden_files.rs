//! Hidden files that look deleted, or whose content leaks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use policy::{BaseLayer, CeilingLayer, EffectivePolicy, FileDenials, PolicySource};
use sandbox::{ApplyOptions, ExecSpec, Sandbox, SandboxSpec, SavedChanges, render_diff};

use crate::attack::{Attack, Group::Review, Place, Verdict, scenario};
use crate::stage::Stage;

const SECRETS: &str = "<secrets>";
const NAIVE: &str = "where the files are missing without a mark in git";
const BLIND: &str = "by a review that does not know which files were hidden";
const HOST: &str = "as a plain process";

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        scenario(
            Review,
            "hidden_commit_named",
            "delete a tracked file that a rule hides by a commit",
            NAIVE,
            commit_named,
        ),
        scenario(
            Review,
            "hidden_commit_source",
            "delete tracked source with names like keys by a commit",
            NAIVE,
            commit_source,
        ),
        scenario(
            Review,
            "hidden_diff_parent",
            "read a hidden file in the diff after removing its directory",
            BLIND,
            parent,
        ),
        scenario(Review, "hidden_diff_replaced", "read a hidden file in the diff after replacing it", BLIND, replaced),
        scenario(Review, "hidden_stat_replaced", "learn the length of a hidden file from the summary", BLIND, counted),
        scenario(Review, "hidden_apply_replaced", "replace a hidden file on the host", BLIND, applied),
        scenario(
            Review,
            "hidden_apply_parent",
            "delete a hidden file on the host with its directory",
            BLIND,
            parent_applied,
        ),
        scenario(Review, "hidden_renamed", "read a hidden file after renaming its directory", HOST, renamed),
        scenario(
            Review,
            "hidden_second_name",
            "read a hidden file by a hard link or symbolic link of the host",
            HOST,
            second_name,
        ),
        scenario(Review, "hidden_names", "find keys with unusual names and other case", HOST, unusual_names),
        scenario(Review, "hidden_git_config", "read a password in the git configuration", HOST, git_config),
        scenario(
            Review,
            "hidden_cache_link",
            "change a host cache by a hard link of a bind workspace",
            HOST,
            cache_link,
        ),
    ]
}

/// A workspace for one attack.
struct Workspace<'a> {
    stage: &'a Stage,
    place: Place,
    directory: tempfile::TempDir,
}

impl<'a> Workspace<'a> {
    fn new(stage: &'a Stage, place: Place, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir_in(&stage.root).expect("directory");
        let this = Self { stage, place, directory };
        for (name, content) in files {
            let path = this.path(name);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(path, content).expect("file");
        }
        this
    }

    fn top(&self) -> PathBuf {
        self.path("")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("project").join(name)
    }

    /// Runs git on the host.
    fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "safe.directory=*"]).args(arguments);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").current_dir(self.top());
        let output = git.stdin(Stdio::null()).output().expect("git");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates a sandbox over the workspace.
    fn sandbox(&self, mode: &str, deny_read: &str) -> Box<dyn Sandbox> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let spec = SandboxSpec {
            id: format!("hidden_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            workspace: Some(self.top()),
            workspace_at: self.top(),
            toolchains: sandbox::Toolchains::default(),
            mounts: vec![],
            files: vec![],
            policy: policy(mode, deny_read),
        };
        self.stage.runtime.block_on(self.stage.maker.backend.create(spec)).expect("sandbox")
    }

    /// Runs a shell line in the sandbox, and returns what it printed.
    fn run(&self, sandbox: &dyn Sandbox, line: &str) -> String {
        let command = ["sh", "-c", line].map(str::to_owned).to_vec();
        let spec = ExecSpec { command, timeout: Some(Duration::from_secs(20)), ..ExecSpec::default() };
        let ran = self.stage.runtime.block_on(sandbox::run(sandbox, spec, &mut |_, _| {})).expect("run");
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
    }

    /// Runs a shell line in a new sandbox, or on the host as the control.
    fn shell(&self, deny_read: &str, line: &str) -> String {
        if self.place == Place::Outside {
            let ran = Command::new("sh").args(["-c", line]).current_dir(self.top()).output().expect("control");
            return String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        }
        let sandbox = self.sandbox("overlay", deny_read);
        let printed = self.run(&*sandbox, line);
        self.stage.destroy(&*sandbox);
        printed
    }

    /// Runs a shell line in a sandbox, and returns its saved changes. The control's review knows of no hidden files.
    fn changes(&self, line: &str) -> SavedChanges {
        let sandbox = self.sandbox("overlay", SECRETS);
        self.run(&*sandbox, line);
        self.stage.destroy(&*sandbox);
        let mut layers = sandbox.layers().expect("layers");
        if self.place == Place::Outside {
            layers.denials = FileDenials::default();
        }
        SavedChanges::save_final(&layers, &self.directory.path().join("saved")).expect("save")
    }

    fn judge(&self, printed: &str) -> Verdict {
        let leaked = printed.contains(&self.stage.secret);
        Verdict::when(leaked, if leaked { "the secret came out" } else { "the secret stayed" })
    }
}

fn policy(mode: &str, deny_read: &str) -> Arc<EffectivePolicy> {
    let text = format!(
        "version: 1\n\
         fs:\n  workspace: {mode}\n  read: [/usr, /lib, /lib64, /bin, /sbin, /etc/alternatives, /etc/ld.so.cache]\n  \
         deny_read: [\"{deny_read}\"]\n\
         proc: {{cpus: 2.0, memory: 256MiB, pids: 64, timeout: 1m, output: 1MiB, disk: 64MiB, nofile: 256}}\n\
         degrade: {{cpus: none, memory: rlimit, pids: rlimit}}\n"
    );
    let base = BaseLayer::read(&PolicySource::new("attack", text)).expect("policy");
    Arc::new(policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]))
}

const COMMIT: &str = "git='git -c user.name=t -c user.email=t@example.com -c safe.directory=* -c commit.gpgsign=false'; \
                      export HOME=/tmp; echo more >> edited; $git add -A && $git commit -aqm edit; \
                      $git ls-tree -r --name-only HEAD";

/// Commits everything, and returns whether a tracked file is gone from the commit.
fn commit(workspace: &Workspace<'_>, deny_read: &str, tracked: &[&str]) -> Verdict {
    workspace.git(&["init", "-q"]);
    workspace.git(&["add", "-f", "."]);
    workspace.git(&["commit", "-qm", "all"]);
    if workspace.place == Place::Outside {
        for name in tracked {
            fs::remove_file(workspace.path(name)).expect("remove");
        }
    }
    let names = workspace.shell(deny_read, COMMIT);
    assert!(names.lines().any(|name| name == "edited"), "the commit failed: {names}");
    let gone = tracked.iter().any(|tracked| !names.lines().any(|name| name == *tracked));
    Verdict::when(gone, format!("the commit has {}", names.replace('\n', " ")))
}

fn commit_named(stage: &Stage, place: Place) -> Verdict {
    let workspace = Workspace::new(stage, place, &[("edited", "1\n"), ("notes/private", &stage.secret)]);
    commit(&workspace, "notes/private", &["notes/private"])
}

fn commit_source(stage: &Stage, place: Place) -> Verdict {
    let certificate = "-----BEGIN PRIVATE KEY-----\nfixture\n";
    let files = [("edited", "1\n"), ("src/id_map.py", "x\n"), (".env.example", "A=\n"), ("tests/ca.pem", certificate)];
    let workspace = Workspace::new(stage, place, &files);
    commit(&workspace, SECRETS, &["src/id_map.py", ".env.example", "tests/ca.pem"])
}

fn secret_workspace(stage: &Stage, place: Place) -> Workspace<'_> {
    let secret = format!("PASSWORD={}\n", stage.secret);
    Workspace::new(stage, place, &[(".env", &secret), ("config/.env", &secret), ("config/plain", "1\n")])
}

fn parent(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    workspace.judge(&render_diff(&workspace.changes("rm -rf config"), None).expect("diff"))
}

fn replaced(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    let saved = workspace.changes("echo new > .env; rm -rf config; mkdir config; echo new > config/.env");
    workspace.judge(&render_diff(&saved, None).expect("diff"))
}

fn counted(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    let stats = workspace.changes("echo new > .env").stat().expect("stat");
    let lines: u64 = stats.iter().map(|stat| stat.lines.removed).sum();
    Verdict::when(lines > 0, format!("{lines} lines of the host were counted"))
}

/// Applies all changes that the review allows, one by one.
fn apply_all(workspace: &Workspace<'_>, saved: &mut SavedChanges) {
    let paths: Vec<_> = saved.changes().map(|change| change.path.clone()).collect();
    for path in paths {
        let options = ApplyOptions::only([path]);
        let _ = sandbox::apply(saved, &workspace.top(), &options, &|_: &Path| None);
    }
}

fn applied(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    apply_all(&workspace, &mut workspace.changes("echo new > .env"));
    let kept = fs::read_to_string(workspace.path(".env")).is_ok_and(|text| text.contains(&stage.secret));
    Verdict::when(!kept, format!("the host's file is {}", if kept { "as before" } else { "replaced" }))
}

fn parent_applied(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    apply_all(&workspace, &mut workspace.changes("rm -rf config"));
    assert!(!workspace.path("config/plain").exists(), "the visible file was deleted and stayed");
    let kept = workspace.path("config/.env").exists();
    Verdict::when(!kept, format!("the host's file is {}", if kept { "as before" } else { "deleted" }))
}

fn renamed(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    let printed = workspace
        .shell(SECRETS, "mv config moved; cat moved/.env moved/../.env .//.env; cp -r . /tmp/all; cat /tmp/all/.env");
    let _ = fs::remove_dir_all("/tmp/all");
    workspace.judge(&printed)
}

fn second_name(stage: &Stage, place: Place) -> Verdict {
    let workspace = secret_workspace(stage, place);
    fs::write(workspace.path("production"), &stage.secret).expect("file");
    symlink("../production", workspace.path("config/.env.live")).expect("link");
    fs::hard_link(workspace.path(".env"), workspace.path("notes.txt")).expect("link");
    workspace
        .judge(&workspace.shell(SECRETS, "cat notes.txt config/.env.live production; ln .env x; ln -s .env y; cat x y"))
}

fn unusual_names(stage: &Stage, place: Place) -> Verdict {
    let key = format!(
        "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\n{}\n",
        stage.secret
    );
    let token = format!("//registry.example.com/:_authToken={}\n", stage.secret);
    let names =
        ["deploy_key", "Server.KEY", "chain.Pem", "backup/id_rsa.old", "ID_ED25519", "prod.key.txt", ".ENV", "a.ENV"];
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (*name, key.as_str())).collect();
    files.push((".npmrc", &token));
    let workspace = Workspace::new(stage, place, &files);
    workspace.judge(&workspace.shell(SECRETS, "find . -type f -exec cat {} +"))
}

fn git_config(stage: &Stage, place: Place) -> Verdict {
    let workspace = Workspace::new(stage, place, &[("a", "1\n")]);
    workspace.git(&["init", "-q"]);
    workspace.git(&["remote", "add", "origin", &format!("https://me:{}@example.com/a.git", stage.secret)]);
    workspace.git(&["config", "http.extraheader", &format!("Authorization: Basic {}", stage.secret)]);
    workspace.judge(&workspace.shell(SECRETS, "cat .git/config; git -c safe.directory='*' config --list"))
}

fn cache_link(stage: &Stage, place: Place) -> Verdict {
    let workspace = Workspace::new(stage, place, &[("a", "1\n")]);
    let cache = workspace.directory.path().join("cache.py");
    fs::write(&cache, "cached\n").expect("cache");
    fs::create_dir_all(workspace.path(".venv")).expect("directory");
    fs::hard_link(&cache, workspace.path(".venv/six.py")).expect("link");
    let line = "echo evil >> .venv/six.py";
    if place == Place::Outside {
        workspace.shell(SECRETS, line);
    } else {
        let sandbox = workspace.sandbox("bind", SECRETS);
        workspace.run(&*sandbox, line);
        stage.destroy(&*sandbox);
        let written = fs::read_to_string(workspace.path(".venv/six.py")).expect("file");
        assert!(written.contains("evil"), "the workspace itself is writable: {written}");
    }
    let changed = fs::read_to_string(&cache).is_ok_and(|text| text != "cached\n");
    Verdict::when(changed, format!("the cache is {}", if changed { "changed" } else { "as before" }))
}
