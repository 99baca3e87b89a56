//! The sender of a series. Nobody is made the sender without having said so.

use std::fmt;
use std::str::FromStr;

/// A name and a mail address, as in a `Signed-off-by:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name, which is before the address.
    pub name: String,
    /// The mail address, which is between `<` and `>`.
    pub mail: String,
}

/// The error for a text that is not a name and an address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no name and address such as \"Ada Example <ada@example.org>\"")]
pub struct NoIdentity(String);

impl FromStr for Identity {
    type Err = NoIdentity;

    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        let parse = || {
            let (name, rest) = text.trim().split_once('<')?;
            let mail = rest.strip_suffix('>')?;
            let (user, host) = mail.split_once('@')?;
            let is_plain = |text: &str| {
                let refused = |c: char| c.is_control() || c.is_whitespace() || "<>@,".contains(c);
                !text.is_empty() && !text.contains(refused)
            };
            let name = name.trim();
            // What separates addresses or needs quotes in a mail's header (RFC 5322, 3.2.3).
            let special = |c: char| c.is_control() || "()<>[]:;@\\,\"".contains(c);
            let is_name = !name.is_empty() && !name.contains(special);
            (is_name && is_plain(user) && is_plain(host)).then(|| Self {
                name: name.to_owned(),
                mail: mail.to_owned(),
            })
        };
        parse().ok_or_else(|| NoIdentity(text.to_owned()))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.name, self.mail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_an_address() {
        let ada: Identity = " Ada Example <ada@example.org>".parse().unwrap();
        assert_eq!(ada.to_string(), "Ada Example <ada@example.org>");
        for wrong in [
            "ada@example.org",
            "<ada@example.org>",
            "Ada <ada>",
            "Ada <@example.org>",
            "Ada\nBcc: x <ada@example.org>",
            "Ada <ada@example.org>, Bob <bob@example.org>",
            "Example, Ada <ada@example.org>",
            "\"Ada\" <ada@example.org>",
        ] {
            assert!(wrong.parse::<Identity>().is_err(), "{wrong:?}");
        }
    }
}
