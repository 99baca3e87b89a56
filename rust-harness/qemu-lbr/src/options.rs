//! The plugin's only option: `-plugin libqemu_lbr.so,depth=16`.

use lbr_model::Depth;

const DEFAULT: u64 = 32;

/// Parses the arguments: the most records that each vCPU has.
pub(crate) fn depth(arguments: &[&str]) -> Result<Depth, String> {
    let mut depth = DEFAULT;
    for argument in arguments {
        let value = argument.strip_prefix("depth=");
        depth = value
            .and_then(|value| value.parse().ok())
            .filter(|count| Depth::from_count(*count).is_some())
            .ok_or_else(|| format!("option '{argument}': expected depth=8, 16, … or 64"))?;
    }
    Depth::from_count(depth).ok_or_else(|| format!("there is no depth of {depth}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_depths_are_taken() {
        assert_eq!(depth(&[]).map(Depth::count), Ok(32));
        assert_eq!(depth(&["depth=16"]).map(Depth::count), Ok(16));
        for wrong in ["depth=12", "depth=", "depth=72", "records=8", "depth"] {
            let error = depth(&[wrong]).unwrap_err();
            assert_eq!(
                error,
                format!("option '{wrong}': expected depth=8, 16, … or 64")
            );
        }
    }
}
