//! Explains to the user what to do about a message of ssh.

use guest_runner::PROGRAM;

use super::Destination;

/// The error message for a connection without a result: what to do next, and what ssh
/// printed.
pub(super) fn failure(to: &Destination, said: &str) -> String {
    let said = said.trim();
    let Destination { user, host, port } = to;
    let has = |words: &str| said.contains(words);
    let next = if has("Host key verification failed") || has("host key is known") {
        format!(
            "connect once by hand, `ssh -p {port} {user}@{host}`, and compare the key with the \
             machine's own"
        )
    } else if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        format!("if the machine was installed anew: `ssh-keygen -R {host}`, then connect by hand")
    } else if has(PROGRAM) {
        format!(
            "{PROGRAM} does not run there: are programs allowed in its directory for temporary \
             files (noexec)?"
        )
    } else if has("Permission denied") {
        format!(
            "no password is asked for here: put a key there, `ssh-copy-id -p {port} \
             {user}@{host}`, or load it into ssh-agent"
        )
    } else if has("Connection refused") || has("timed out") || has("No route to host") {
        format!("is {host} up, and does sshd listen on port {port}?")
    } else if has("not found") {
        "the machine needs sh, mktemp, head, wc, chmod and rm".to_owned()
    } else {
        "the connection ended before the command did".to_owned()
    };
    if said.is_empty() {
        format!("{to}: {next}")
    } else {
        format!(
            "{to}: {next}\nssh said:\n    {}",
            said.replace('\n', "\n    ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_is_named() {
        let to = "ssh://root@board:2222".parse().unwrap();
        for (said, next) in [
            (
                "Host key verification failed.\r\n",
                "`ssh -p 2222 root@board`",
            ),
            (
                "root@board: Permission denied (publickey).",
                "ssh-copy-id -p 2222",
            ),
            (
                "ssh: connect to host board port 2222: Connection refused",
                "listen on port 2222",
            ),
            ("sh: 1: mktemp: not found", "needs sh, mktemp"),
            (
                "sh: 9: /tmp/brbe.x/.guest-runner: Permission denied",
                "noexec",
            ),
            ("", "ended before the command did"),
        ] {
            let hint = failure(&to, said);
            assert!(hint.contains(next) && hint.contains(said.trim()), "{hint}");
        }
    }
}
