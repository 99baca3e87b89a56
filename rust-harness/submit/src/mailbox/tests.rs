use super::*;

#[test]
fn git_send_email_has_to_take_each_mail() {
    let dir = tempfile::tempdir().unwrap();
    let mail = |to: &str| {
        let path = dir.path().join("mail.patch");
        let from = "From: A <a@example.org>\nDate: Fri, 20 Nov 2026 00:00:00 +0000\n";
        let text = format!("{from}Subject: [PATCH] x\nTo: {to}\n\nx\n");
        fs::write(&path, text).unwrap();
        [path]
    };
    let send = |to| send_email("A <a@example.org>", &mail(to));
    send("B <b@example.org>").unwrap();
    let refused = send("B <b@localhost>").unwrap_err().to_string();
    assert!(refused.contains("would send 0 of 1 mails"), "{refused}");
    assert!(refused.contains("b@localhost"), "{refused}");
}

#[test]
fn what_has_changed_goes_below_the_message() {
    let end = " file | 2 +-\n 1 file\n\ndiff --git a/file b/file\n";
    let patch = &format!("From: x\nSubject: [PATCH] y\n\nwhy\n---\n{end}");
    assert_eq!(changes(patch), None);
    let told = &format!("why\n---\nv2:\n- this (Mark)\n\n - that\n\n{end}");
    assert_eq!(changes(told), Some("v2:\n- this (Mark)\n\n - that"));
    let close = format!("why\n---\nv2: this\n\nv3: that\n{end}");
    assert_eq!(changes(&close), Some("v2: this\n\nv3: that"));
    let dir = tempfile::tempdir().unwrap();
    let [mail, file] = ["mail", "file"].map(|name| dir.path().join(name));
    fs::write(&mail, patch).unwrap();
    fs::write(&file, told).unwrap();
    copy_changelog(&mail, &file).unwrap();
    let text = fs::read_to_string(&mail).unwrap();
    let below = format!("\nwhy\n---\nv2:\n- this (Mark)\n\n - that\n\n{end}");
    assert!(text.ends_with(&below), "{text}");
}

#[test]
fn only_mails_as_they_were_made_are_replaced() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("mails");
    let new = |text: &str, scratch: &Path| {
        let new = scratch.join("new");
        fs::create_dir(&new).unwrap();
        for name in ["0000-letter.patch", "0001-x.patch"] {
            fs::write(new.join(name), format!("{name} {text}")).unwrap();
        }
        let mails = ["0000-letter.patch", "0001-x.patch"].map(|name| new.join(name));
        fs::write(new.join(MAILBOX), together(mails.iter()).unwrap()).unwrap();
        new
    };
    let replaced = |text| {
        let scratch = tempfile::tempdir_in(&parent).unwrap();
        replace(&dir, &new(text, scratch.path()))
    };
    replaced("one").unwrap();
    replaced("two").unwrap();
    let letter = dir.join("0000-letter.patch");
    assert_eq!(
        fs::read_to_string(&letter).unwrap(),
        "0000-letter.patch two"
    );
    fs::write(&letter, "edited").unwrap();
    assert!(
        replaced("three")
            .unwrap_err()
            .to_string()
            .contains("edited")
    );
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("thesis.txt"), "").unwrap();
    assert!(replaced("four").is_err());
    fs::remove_file(dir.join("thesis.txt")).unwrap();
    replaced("five").unwrap();
}
