//! Targets: what is traced, as the command line says it: `[KIND:]NAME`, with the kinds
//! that bpftrace has.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use branch_records::capture::Moment;
use branch_records::functions::SourcePattern;

/// A target on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Functions of the kernel.
    Functions {
        functions: FunctionSet,
        moment: Moment,
        by: By,
    },
    /// A tracepoint.
    Tracepoint { category: String, name: String },
    /// A raw tracepoint.
    RawTracepoint { name: String },
    /// A function of a loaded BPF program; where none is named, its main function.
    Bpf {
        program: String,
        function: Option<String>,
        moment: Moment,
    },
    /// A user-space function in a file.
    User {
        file: String,
        symbol: String,
        moment: Moment,
    },
}

/// Which functions of the kernel are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FunctionSet {
    /// Functions whose name matches the pattern.
    Named(String),
    /// Functions that are declared in source files that match the pattern.
    OfSource(SourcePattern),
    /// Functions whose names are the lines of a file.
    Listed(PathBuf),
}

/// How a kernel function is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// By whatever costs the fewest records, of what the kernel offers.
    Any,
    /// By a BPF trampoline: fentry, fexit.
    Trampoline,
    /// By a probe: kprobe.multi, kretprobe.multi.
    Probe,
}

/// Why a word is no target.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum TargetError {
    #[error("there is no name in {0:?}")]
    NoName(String),
    #[error(
        "{0:?} is no kind of target, as fentry, fexit, kprobe, kretprobe, tracepoint, rawtracepoint, \
         uprobe and uretprobe are"
    )]
    Kind(String),
    #[error("{0:?} is to be tracepoint:CATEGORY:NAME")]
    Tracepoint(String),
    #[error("{0:?} is to be uprobe:FILE:SYMBOL or uretprobe:FILE:SYMBOL")]
    User(String),
    #[error("{0:?} has no pattern of source files, such as kernel/bpf/*.c")]
    Source(String),
}

impl fmt::Display for FunctionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(pattern) => f.write_str(pattern),
            Self::OfSource(pattern) => write!(f, ":{pattern}"),
            Self::Listed(path) => write!(f, "@{}", path.display()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions {
                functions,
                moment,
                by,
            } => {
                let kind = match (by, moment) {
                    (By::Any, _) => "",
                    (By::Trampoline, Moment::Entry) => "fentry:",
                    (By::Trampoline, _) => "fexit:",
                    (By::Probe, Moment::Entry) => "kprobe:",
                    (By::Probe, _) => "kretprobe:",
                };
                write!(f, "{kind}{functions}")
            }
            Self::Tracepoint { category, name } => write!(f, "tracepoint:{category}:{name}"),
            Self::RawTracepoint { name } => write!(f, "rawtracepoint:{name}"),
            Self::Bpf {
                program,
                function,
                moment,
            } => {
                let kind = match moment {
                    Moment::Entry => "fentry",
                    _ => "fexit",
                };
                write!(f, "{kind}:bpf:{program}")?;
                function
                    .iter()
                    .try_for_each(|function| write!(f, ":{function}"))
            }
            Self::User {
                file,
                symbol,
                moment,
            } => {
                let kind = match moment {
                    Moment::Entry => "uprobe",
                    _ => "uretprobe",
                };
                write!(f, "{kind}:{file}:{symbol}")
            }
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let Some((kind, name)) = text.split_once(':').filter(|_| !text.starts_with('@')) else {
            return functions(text, text, Moment::Return, By::Any);
        };
        let (moment, by) = match kind {
            "" => return functions(text, text, Moment::Return, By::Any),
            "fentry" => (Moment::Entry, By::Trampoline),
            "fexit" => (Moment::Return, By::Trampoline),
            "kprobe" | "k" => (Moment::Entry, By::Probe),
            "kretprobe" | "kr" => (Moment::Return, By::Probe),
            "uprobe" | "u" => return user(text, name, Moment::Entry),
            "uretprobe" | "ur" => return user(text, name, Moment::Return),
            "tracepoint" | "t" => {
                return match name.split_once(':') {
                    Some((category, name)) if !category.is_empty() && !name.is_empty() => {
                        Ok(Self::Tracepoint {
                            category: category.to_owned(),
                            name: name.to_owned(),
                        })
                    }
                    _ => Err(TargetError::Tracepoint(text.to_owned())),
                };
            }
            "rawtracepoint" | "rt" if !name.is_empty() => {
                return Ok(Self::RawTracepoint {
                    name: name.to_owned(),
                });
            }
            "rawtracepoint" | "rt" => return Err(TargetError::NoName(text.to_owned())),
            _ => return Err(TargetError::Kind(kind.to_owned())),
        };
        match name.strip_prefix("bpf:") {
            Some(program) if by == By::Trampoline => bpf(text, program, moment),
            _ => functions(text, name, moment, by),
        }
    }
}

fn functions(text: &str, pattern: &str, moment: Moment, by: By) -> Result<Target, TargetError> {
    let no_name = || TargetError::NoName(text.to_owned());
    let functions = match (pattern.strip_prefix(':'), pattern.strip_prefix('@')) {
        (Some(files), _) if !files.is_empty() => {
            let files = SourcePattern::new(files);
            FunctionSet::OfSource(files.map_err(|_| TargetError::Source(text.to_owned()))?)
        }
        (_, Some(path)) if !path.is_empty() => FunctionSet::Listed(path.into()),
        (None, None) if !pattern.is_empty() => FunctionSet::Named(pattern.to_owned()),
        _ => return Err(no_name()),
    };
    Ok(Target::Functions {
        functions,
        moment,
        by,
    })
}

fn bpf(text: &str, name: &str, moment: Moment) -> Result<Target, TargetError> {
    let (program, function) = match name.split_once(':') {
        Some((program, function)) => (program, Some(function)),
        None => (name, None),
    };
    if program.is_empty() || function == Some("") {
        return Err(TargetError::NoName(text.to_owned()));
    }
    Ok(Target::Bpf {
        program: program.to_owned(),
        function: function.map(str::to_owned),
        moment,
    })
}

fn user(text: &str, name: &str, moment: Moment) -> Result<Target, TargetError> {
    // A file may have colons in its name, a symbol has none.
    match name.rsplit_once(':') {
        Some((file, symbol)) if !file.is_empty() && !symbol.is_empty() => Ok(Target::User {
            file: file.to_owned(),
            symbol: symbol.to_owned(),
            moment,
        }),
        _ => Err(TargetError::User(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_spelling() {
        let of = |functions, moment, by| Target::Functions {
            functions,
            moment,
            by,
        };
        let function =
            |pattern: &str, moment, by| of(FunctionSet::Named(pattern.to_owned()), moment, by);
        let source = FunctionSet::OfSource(SourcePattern::new("kernel/bpf/*.c").unwrap());
        let bpf = |program: &str, function: Option<&str>| Target::Bpf {
            program: program.to_owned(),
            function: function.map(str::to_owned),
            moment: Moment::Return,
        };
        for (text, target) in [
            ("vfs_*", function("vfs_*", Moment::Return, By::Any)),
            (
                "fentry:vfs_read",
                function("vfs_read", Moment::Entry, By::Trampoline),
            ),
            ("k:vfs_read", function("vfs_read", Moment::Entry, By::Probe)),
            (
                "kretprobe:vfs_?ead",
                function("vfs_?ead", Moment::Return, By::Probe),
            ),
            (
                ":kernel/bpf/*.c",
                of(source.clone(), Moment::Return, By::Any),
            ),
            (
                "kprobe::kernel/bpf/*.c",
                of(source, Moment::Entry, By::Probe),
            ),
            (
                "@/a:b",
                of(FunctionSet::Listed("/a:b".into()), Moment::Return, By::Any),
            ),
            (
                "kretprobe:@names",
                of(
                    FunctionSet::Listed("names".into()),
                    Moment::Return,
                    By::Probe,
                ),
            ),
            ("fexit:bpf:42", bpf("42", None)),
            ("fexit:bpf:prog:sub", bpf("prog", Some("sub"))),
            (
                "tracepoint:sched:sched_switch",
                Target::Tracepoint {
                    category: "sched".to_owned(),
                    name: "sched_switch".to_owned(),
                },
            ),
            (
                "rt:sys_exit",
                Target::RawTracepoint {
                    name: "sys_exit".to_owned(),
                },
            ),
            (
                "ur:/a:b/c:main",
                Target::User {
                    file: "/a:b/c".to_owned(),
                    symbol: "main".to_owned(),
                    moment: Moment::Return,
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn what_is_no_target_is_reported() {
        for (text, message) in [
            ("", "no name"),
            ("fexit:", "no name"),
            (":", "no name"),
            ("@", "no name"),
            ("kprobe::[", "kernel/bpf/*.c"),
            ("fexit:bpf:", "no name"),
            ("rt:", "no name"),
            ("usdt:x:y", "\"usdt\" is no kind"),
            ("t:sched_switch", "tracepoint:CATEGORY:NAME"),
            ("u:/bin/true", "uprobe:FILE:SYMBOL"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
