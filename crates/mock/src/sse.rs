//! Parses server-sent events. Only the `data` of each event is used.

use std::io::{self, BufRead};

/// Returns the data of the next event; `None` at the end of the stream.
pub(crate) fn next_data(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut data: Option<String> = None;
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            // An event without its final blank line is incomplete and dropped.
            return Ok(None);
        }
        let text = line.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            if data.is_some() {
                return Ok(data);
            }
        } else if let Some(more) = text.strip_prefix("data:") {
            let more = more.strip_prefix(' ').unwrap_or(more);
            match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(more);
                }
                None => data = Some(more.to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_event_names_and_line_endings_are_ignored() {
        let mut stream: &[u8] = b": hi\r\n\r\nevent: a\r\ndata: 1\r\n\r\ndata:2\ndata: 3\n\n\ndata: cut";
        assert_eq!(next_data(&mut stream).unwrap().as_deref(), Some("1"));
        assert_eq!(next_data(&mut stream).unwrap().as_deref(), Some("2\n3"));
        assert_eq!(next_data(&mut stream).unwrap(), None);
    }
}
