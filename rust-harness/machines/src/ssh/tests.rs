use super::*;

#[test]
fn destinations_are_parsed() {
    let parse = |text: &str| text.parse::<Destination>().map(|to| to.to_string());
    assert_eq!(parse("ssh://root@board"), Ok("root@board".to_owned()));
    assert_eq!(
        parse("ssh://me@10.0.0.1:2222/"),
        Ok("me@10.0.0.1:2222".to_owned())
    );
    let six: Destination = "ssh://root@[fe80::1]:23".parse().unwrap();
    assert_eq!((six.host.as_str(), six.port), ("fe80::1", 23));
    for wrong in [
        "board",
        "ssh://board",
        "ssh://root@",
        "ssh://root@-oProxyCommand=x",
        "ssh://-l@board",
        "ssh://root@board:port",
        "ssh://root@a b",
        "ssh://root@[::1",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

/// The messages of a run over a connection that carries `bytes`.
fn received(bytes: &'static [u8], share: &Path) -> Vec<Message> {
    messages(bytes, share, 60).iter().collect()
}

#[test]
fn events_become_messages_and_the_files_come_before_the_end() {
    let share = tempfile::tempdir().unwrap();
    let events = b"a banner\n\"Ready\"\n\"CommandBegins\"\n{\"Output\":\"one\"}\n{\"Exited\":7}\n";
    let mut bytes = events.to_vec();
    files::pack(share.path(), &[], &mut bytes).unwrap();
    let line = |text: &str| Message::Line(text.to_owned());
    let end = Message::End(End::Exited(7));
    let expected = [line("a banner"), Message::Ready, line("one"), end];
    assert_eq!(received(bytes.leak(), share.path()), expected);
    let cut = received(b"{\"Exited\":7}\n", share.path());
    assert!(
        matches!(&cut[..], [Message::End(End::Failed(_))]),
        "{cut:?}"
    );
    let broken = received(b"{\"Exited\":7}\nno archive", share.path());
    assert!(
        matches!(&broken[..], [Message::End(End::Failed(_))]),
        "{broken:?}"
    );
}

#[test]
fn a_command_that_never_ends_talking_is_ended() {
    let share = tempfile::tempdir().unwrap();
    let line = b"{\"Output\":\"twenty-one bytes\"}\n";
    let much = received(line.repeat(3).leak(), share.path());
    assert_eq!(much.len(), 3);
    assert_eq!(much[2], Message::End(End::Failed(printed_too_much(60))));
    // A connection that ends before the command does has no end.
    assert_eq!(received(line, share.path()).len(), 1);
}

#[test]
fn nothing_is_asked_for() {
    let ssh = Ssh {
        to: "ssh://root@board:2222".parse().unwrap(),
        options: vec!["ProxyJump=gate".to_owned()],
    };
    let arguments = ssh.arguments();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    assert!(has("BatchMode=yes") && has("StrictHostKeyChecking=yes") && has("2222"));
    assert_eq!(arguments[2], "ProxyJump=gate");
    assert_eq!(arguments.last().unwrap(), "board");
}
