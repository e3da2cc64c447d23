//! Pictures that go with a message, for agents whose models can look at them.
//!
//! They are read where the agent would read them, in its workspace and under its rules. One that is not there, or is too
//! large for any model, does not go along: the message still names the file, and the agent finds out for itself.

use std::path::Path;

use agents::PromptImage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::Attachment;
use sandbox::{ByteRange, Sandbox};
use tokio::io::AsyncReadExt as _;

/// What vendors take at most.
const LARGEST: u64 = 5 << 20;

/// Media types that every vendor's models take, and how such files are called.
const KINDS: &[(&str, &[&str])] =
    &[("image/png", &["png"]), ("image/jpeg", &["jpg", "jpeg"]), ("image/gif", &["gif"]), ("image/webp", &["webp"])];

/// The pictures among `attachments`.
pub(crate) async fn read(sandbox: &dyn Sandbox, attachments: &[Attachment]) -> Vec<PromptImage> {
    let mut pictures = Vec::new();
    for attachment in attachments {
        let Some(mime) = kind(attachment) else { continue };
        let Some(bytes) = bytes(sandbox, &attachment.path).await else {
            tracing::info!(path = %attachment.path, "a picture cannot go with the message");
            continue;
        };
        let (path, mime) = (attachment.path.clone(), mime.to_owned());
        pictures.push(PromptImage { path, mime, data: STANDARD.encode(bytes) });
    }
    pictures
}

async fn bytes(sandbox: &dyn Sandbox, path: &str) -> Option<Vec<u8>> {
    let mut content = sandbox.files().read(Path::new(path), ByteRange::first(LARGEST + 1)).await.ok()?;
    let mut bytes = Vec::new();
    content.bytes.read_to_end(&mut bytes).await.ok()?;
    Some(bytes).filter(|bytes| bytes.len() as u64 <= LARGEST)
}

/// The media type of a picture: as it was told, or as the file is called.
fn kind(attachment: &Attachment) -> Option<&'static str> {
    let extension = Path::new(&attachment.path).extension().and_then(|extension| extension.to_str());
    let extension = extension.map(str::to_ascii_lowercase);
    let is_it = |(mime, extensions): &&(&str, &[&str])| match &attachment.mime {
        Some(told) => told == mime,
        None => extension.as_deref().is_some_and(|extension| extensions.contains(&extension)),
    };
    KINDS.iter().find(is_it).map(|(mime, _)| *mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_known_by_its_type_or_by_its_name() {
        for (path, mime, expected) in [
            ("a.png", None, Some("image/png")),
            ("a.JPG", None, Some("image/jpeg")),
            ("a.bin", Some("image/webp"), Some("image/webp")),
            ("a.png", Some("text/plain"), None),
            ("a.svg", Some("image/svg+xml"), None),
            ("png", None, None),
        ] {
            let attachment = Attachment { path: path.into(), mime: mime.map(str::to_owned), filename: None };
            assert_eq!(kind(&attachment), expected, "{path} {mime:?}");
        }
    }
}
