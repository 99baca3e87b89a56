//! Frames: what goes between the session in the guest and the host, in both directions.
//!
//! A frame is a byte for its kind, four bytes for the length of what follows (little-endian), and
//! what follows.

use std::io::{self, ErrorKind, Read, Write};

use crate::config::WindowSize;

/// How many bytes follow the head of a frame at the most.
pub const MOST: usize = 1 << 16;

/// One of the two streams that a command prints on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or a terminal.
    Output,
    /// Standard error.
    Error,
}

/// What goes between the session and the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To the guest: bytes for standard input.
    Input(Vec<u8>),
    /// To the guest: there is no more input.
    InputEnds,
    /// To the guest: the terminal has another size.
    Resized(WindowSize),
    /// To the guest: the last frame has come, and the machine may end.
    Done,
    /// To the host: the command begins.
    Begun,
    /// To the host: bytes that the command has printed.
    Printed(Stream, Vec<u8>),
    /// To the host: the command ended with this exit status; 128 and the signal's number if a
    /// signal ended it. It is the last frame.
    Ended(u8),
    /// To the host: the command could not be run, for this reason. It is the last frame.
    Failed(String),
}

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than any.
    #[error("a frame of {0} bytes: there are {MOST} at the most")]
    TooLong(u32),
    /// There is no such kind of frame.
    #[error("no frame is of the kind {0}")]
    Kind(u8),
    /// The length or the text of a frame is wrong for its kind.
    #[error("a frame of the kind {0} is malformed")]
    Malformed(u8),
    /// It cannot be read, or ends in the midst of a frame.
    #[error(transparent)]
    Read(#[from] io::Error),
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Input(_) => 0,
            Self::InputEnds => 1,
            Self::Resized(_) => 2,
            Self::Begun => 3,
            Self::Printed(Stream::Output, _) => 4,
            Self::Printed(Stream::Error, _) => 5,
            Self::Ended(_) => 6,
            Self::Failed(_) => 7,
            Self::Done => 8,
        }
    }

    fn of(kind: u8, rest: Vec<u8>) -> Result<Self, FrameError> {
        Ok(match (kind, &rest[..]) {
            (0, _) => Self::Input(rest),
            (1, []) => Self::InputEnds,
            (2, &[r0, r1, c0, c1]) => Self::Resized(WindowSize {
                rows: u16::from_le_bytes([r0, r1]),
                columns: u16::from_le_bytes([c0, c1]),
            }),
            (3, []) => Self::Begun,
            (4, _) => Self::Printed(Stream::Output, rest),
            (5, _) => Self::Printed(Stream::Error, rest),
            (6, &[status]) => Self::Ended(status),
            (7, _) => Self::Failed(String::from_utf8_lossy(&rest).into_owned()),
            (8, []) => Self::Done,
            (0..=8, _) => return Err(FrameError::Malformed(kind)),
            _ => return Err(FrameError::Kind(kind)),
        })
    }

    /// Writes the frame. What is longer than [`MOST`] is cut.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let size;
        let rest: &[u8] = match self {
            Self::Input(bytes) | Self::Printed(_, bytes) => bytes,
            Self::Resized(WindowSize { rows, columns }) => {
                let [r0, r1] = rows.to_le_bytes();
                let [c0, c1] = columns.to_le_bytes();
                size = [r0, r1, c0, c1];
                &size
            }
            Self::Ended(status) => std::slice::from_ref(status),
            Self::Failed(why) => why.as_bytes(),
            Self::InputEnds | Self::Begun | Self::Done => &[],
        };
        let rest = &rest[..rest.len().min(MOST)];
        let length = u32::try_from(rest.len()).map_err(io::Error::other)?;
        let mut all = vec![self.kind()];
        all.extend(length.to_le_bytes());
        all.extend(rest);
        to.write_all(&all)?;
        to.flush()
    }

    /// Reads a frame. `None` if there is no more.
    ///
    /// # Errors
    ///
    /// When what is read is no frame.
    pub fn read(from: &mut impl Read) -> Result<Option<Self>, FrameError> {
        let mut kind = [0];
        loop {
            match from.read(&mut kind) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let [kind] = kind;
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        let too_long = FrameError::TooLong(length);
        let length = usize::try_from(length).ok().filter(|bytes| *bytes <= MOST);
        let mut rest = vec![0; length.ok_or(too_long)?];
        from.read_exact(&mut rest)?;
        Self::of(kind, rest).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn each() -> Vec<Frame> {
        let size = WindowSize {
            rows: 300,
            columns: 80,
        };
        vec![
            Frame::Input(b"ls\n\0\xff".to_vec()),
            Frame::InputEnds,
            Frame::Resized(size),
            Frame::Begun,
            Frame::Printed(Stream::Output, Vec::new()),
            Frame::Printed(Stream::Error, vec![7; MOST]),
            Frame::Ended(3),
            Frame::Failed("no such program".to_owned()),
            Frame::Done,
        ]
    }

    #[test]
    fn each_frame_comes_back_after_the_one_before_it() {
        let mut bytes = Vec::new();
        for frame in each() {
            frame.write(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        let read: Vec<_> = std::iter::from_fn(|| Frame::read(&mut rest).unwrap()).collect();
        assert_eq!(read, each());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let error = |bytes: &[u8]| Frame::read(&mut &bytes[..]).unwrap_err().to_string();
        assert_eq!(error(&[9, 0, 0, 0, 0]), "no frame is of the kind 9");
        assert_eq!(
            error(&[6, 0, 0, 0, 0]),
            "a frame of the kind 6 is malformed"
        );
        let long = error(&[0, 1, 0, 1, 0]);
        assert!(long.starts_with("a frame of 65537 bytes"), "{long}");
        for cut in 1..5 {
            error(&[0, 1, 0, 0, 0][..cut]);
        }
        error(&[0, 2, 0, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_frame_or_an_error(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = Frame::read(&mut rest) {
                let mut again = Vec::new();
                frame.write(&mut again).unwrap();
                prop_assert!(again.len() <= MOST + 5);
            }
        }
    }
}
