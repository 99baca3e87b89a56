//! Parses the language of filters.

use crate::errno;

use super::argument::{self, ArgumentPath};
use super::token::{Token, tokens};
use super::{
    Filter, FilterError, FilterField, FilterOp, FilterStep, MAX_ARGUMENTS, cgroup_id, words,
};

/// How deep parentheses and `!` may be nested.
const DEEPEST: usize = 32;

/// Parses a filter in which each comparison names its field.
///
/// # Errors
///
/// When the text is no filter, and when there is no such control group on this machine.
pub fn parse(text: &str) -> Result<Filter, FilterError> {
    Parser::of(text, None)?.whole()
}

/// Parses a filter of snapshots in a capture. Captures do not hold control groups.
///
/// # Errors
///
/// When the text is no filter, or asks for a control group.
pub fn parse_captured(text: &str) -> Result<Filter, FilterError> {
    if tokens(text)?.contains(&Token::Word("cgroup")) {
        return Err(FilterError::NotCaptured);
    }
    parse(text)
}

/// Parses a filter of the return value, in which a comparison need not name its field:
/// `< 0 || == 42`.
///
/// # Errors
///
/// When the text is no filter.
pub fn parse_returned(text: &str) -> Result<Filter, FilterError> {
    Parser::of(text, Some(FilterField::Returned))?.whole()
}

struct Parser<'a> {
    /// The tokens that are left, in reverse: they are taken off the end.
    rest: Vec<Token<'a>>,
    /// The field of a comparison that names none.
    assumed: Option<FilterField>,
    steps: Vec<FilterStep>,
    arguments: Vec<ArgumentPath>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn of(text: &'a str, assumed: Option<FilterField>) -> Result<Self, FilterError> {
        let mut rest = tokens(text)?;
        rest.reverse();
        Ok(Self {
            rest,
            assumed,
            steps: Vec::new(),
            arguments: Vec::new(),
            depth: 0,
        })
    }

    fn whole(mut self) -> Result<Filter, FilterError> {
        self.list()?;
        if self.rest.is_empty() {
            let filter = Filter {
                steps: self.steps,
                arguments: self.arguments,
            };
            filter.checked()
        } else {
            Err(self.expected("&&, || or the end"))
        }
    }

    fn list(&mut self) -> Result<(), FilterError> {
        self.chain(",", FilterOp::And, |parser| {
            parser.chain("||", FilterOp::Or, |parser| {
                parser.chain("&&", FilterOp::And, Self::one)
            })
        })
    }

    /// Parses one `part` after the other, with `sign` in between, and joins them by `op`.
    fn chain(
        &mut self,
        sign: &str,
        op: FilterOp,
        part: impl Fn(&mut Self) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        part(self)?;
        while self.takes(sign) {
            part(self)?;
            self.steps.push(FilterStep::of(op));
        }
        Ok(())
    }

    fn one(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        if self.takes("!") {
            self.one()?;
            self.steps.push(FilterStep::of(FilterOp::Not));
        } else if self.takes("(") {
            self.list()?;
            if !self.takes(")") {
                return Err(self.expected("a closing parenthesis"));
            }
        } else {
            self.test()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn test(&mut self) -> Result<(), FilterError> {
        let field = match (self.rest.last().cloned(), self.assumed) {
            (Some(Token::Word(word)), _) if word.starts_with(argument::PREFIX) => {
                Some((self.argument(word)?, true))
            }
            (Some(Token::Word(word)), _) => field(word),
            (Some(Token::Sign(_)), assumed) => assumed.map(|assumed| (assumed, false)),
            _ => None,
        };
        let (field, named) = match field {
            Some((field, named)) => (field, named),
            None => {
                return Err(
                    self.expected("pid, tid, cpu, comm, cgroup, duration, ret, failed or arg.NAME")
                );
            }
        };
        if named {
            self.rest.pop();
        }
        if field == FilterField::Failed {
            self.steps.push(FilterStep::equal(field, 1));
            return Ok(());
        }
        let Some(Token::Sign(operator @ ("==" | "!=" | "<" | "<=" | ">" | ">="))) =
            self.rest.last()
        else {
            return Err(self.expected("==, !=, <, <=, > or >="));
        };
        let operator = *operator;
        self.rest.pop();
        match field {
            FilterField::Comm => self.compare_comm(operator),
            FilterField::Cgroup => self.compare_cgroup(operator),
            _ => self.compare_number(field, operator),
        }
    }

    /// The field for an argument. Each path is there once.
    fn argument(&mut self, word: &str) -> Result<FilterField, FilterError> {
        let path = ArgumentPath::parse(word)?;
        let known = self.arguments.iter().position(|known| *known == path);
        let index = known.unwrap_or_else(|| {
            self.arguments.push(path);
            self.arguments.len() - 1
        });
        if index >= MAX_ARGUMENTS {
            return Err(FilterError::TooManyArguments);
        }
        Ok(FilterField::Argument(index as u8))
    }

    fn compare_number(&mut self, field: FilterField, operator: &str) -> Result<(), FilterError> {
        let Some(Token::Word(word)) = self.rest.last() else {
            return Err(self.expected("a number"));
        };
        let word = *word;
        let value = match field {
            FilterField::Duration => time(word)?.cast_signed(),
            FilterField::Returned | FilterField::Argument(_) => number_or_error(word)?,
            _ => number(word).ok_or_else(|| FilterError::Number(word.to_owned()))?,
        };
        self.rest.pop();
        let (op, not) = match operator {
            "==" => (FilterOp::Equal, false),
            "!=" => (FilterOp::Equal, true),
            "<" => (FilterOp::Less, false),
            "<=" => (FilterOp::LessEqual, false),
            ">" => (FilterOp::LessEqual, true),
            _ => (FilterOp::Less, true),
        };
        self.push(FilterStep::compare(op, field, value.cast_unsigned()), not);
        Ok(())
    }

    fn compare_comm(&mut self, operator: &str) -> Result<(), FilterError> {
        let name = self.text("the name of a thread, in quotes")?;
        let (start, whole) = match name.strip_suffix('*') {
            Some(start) => (start, false),
            None => (name, true),
        };
        if start.len() > 15 {
            return Err(FilterError::Comm(name.to_owned()));
        }
        let mut value = [0; 16];
        value[..start.len()].copy_from_slice(start.as_bytes());
        let mut mask = [0; 16];
        // A whole name is compared with the byte that ends it, which is another one in a
        // longer name.
        mask[..start.len() + usize::from(whole)].fill(0xff);
        let step = FilterStep {
            mask: words(mask),
            value: words(value),
            ..FilterStep::equal(FilterField::Comm, 0)
        };
        self.push_equality("comm", operator, step)
    }

    fn compare_cgroup(&mut self, operator: &str) -> Result<(), FilterError> {
        let id = match self.rest.last() {
            Some(Token::Text(_)) => cgroup_id(self.text("a directory")?)?,
            Some(Token::Word(word)) => {
                let id = number(word).ok_or_else(|| FilterError::Number((*word).to_owned()))?;
                self.rest.pop();
                id.cast_unsigned()
            }
            _ => return Err(self.expected("a control group's directory, in quotes, or its number")),
        };
        self.push_equality(
            "cgroup",
            operator,
            FilterStep::equal(FilterField::Cgroup, id),
        )
    }

    fn push_equality(
        &mut self,
        field: &'static str,
        operator: &str,
        step: FilterStep,
    ) -> Result<(), FilterError> {
        match operator {
            "==" => self.push(step, false),
            "!=" => self.push(step, true),
            _ => return Err(FilterError::Operator { field }),
        }
        Ok(())
    }

    fn push(&mut self, step: FilterStep, not: bool) {
        self.steps.push(step);
        if not {
            self.steps.push(FilterStep::of(FilterOp::Not));
        }
    }

    fn text(&mut self, expected: &'static str) -> Result<&'a str, FilterError> {
        let Some(Token::Text(text)) = self.rest.last() else {
            return Err(self.expected(expected));
        };
        let text = *text;
        self.rest.pop();
        Ok(text)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let there = matches!(self.rest.last(), Some(Token::Sign(found)) if *found == sign);
        if there {
            self.rest.pop();
        }
        there
    }

    fn expected(&self, expected: &'static str) -> FilterError {
        let found = match self.rest.last() {
            None => "the end",
            Some(Token::Word(word) | Token::Text(word)) => word,
            Some(Token::Sign(sign)) => sign,
        };
        FilterError::Expected {
            expected,
            found: found.to_owned(),
        }
    }
}

/// The field with this name, and `true`: the comparison names its field.
fn field(word: &str) -> Option<(FilterField, bool)> {
    let field = match word {
        "pid" => FilterField::Pid,
        "tid" => FilterField::Tid,
        "cpu" => FilterField::Cpu,
        "comm" => FilterField::Comm,
        "cgroup" => FilterField::Cgroup,
        "duration" => FilterField::Duration,
        "ret" => FilterField::Returned,
        "failed" => FilterField::Failed,
        _ => return None,
    };
    Some((field, true))
}

/// Parses a number of 64 bits, decimal or hexadecimal, with or without a minus sign.
fn number(word: &str) -> Option<i64> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let plain = digits.starts_with(|c: char| c.is_ascii_digit());
    let value = match digits.strip_prefix("0x") {
        Some(digits) if !digits.starts_with(['+', '-']) => u64::from_str_radix(digits, 16),
        _ => digits.parse::<u64>(),
    };
    let value = value.ok().filter(|_| plain)?;
    if !negative {
        Some(value.cast_signed())
    } else {
        0_i64.checked_sub_unsigned(value)
    }
}

fn number_or_error(word: &str) -> Result<i64, FilterError> {
    if let Some(value) = number(word) {
        return Ok(value);
    }
    let name = word.strip_prefix('-').unwrap_or(word);
    if !name.starts_with('E') {
        return Err(FilterError::Number(word.to_owned()));
    }
    let number = errno::number(name).ok_or_else(|| FilterError::Errno(word.to_owned()))?;
    Ok(if word.starts_with('-') {
        -i64::from(number)
    } else {
        i64::from(number)
    })
}

/// Parses a time with or without a unit, and returns nanoseconds.
fn time(word: &str) -> Result<u64, FilterError> {
    let wrong = || FilterError::Time(word.to_owned());
    let end = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let per_unit = match unit {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let nanoseconds = number * per_unit;
    if !(0.0..9e18).contains(&nanoseconds) {
        return Err(wrong());
    }
    Ok(nanoseconds as u64)
}
