//! Images attached to a message, for agents whose models accept images.
//!
//! They are read inside the sandbox, under the session's policy. An image that is missing or too large is not sent; the
//! message still names its path, and the agent can report the problem.

use std::path::Path;

use agents::PromptImage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::Attachment;
use sandbox::{ByteRange, Sandbox};
use tokio::io::AsyncReadExt as _;

/// Largest image that vendors accept, in bytes.
const MAX_IMAGE_BYTES: u64 = 5 << 20;

/// Media types that all vendors accept, with their file extensions.
const MEDIA_TYPES: &[(&str, &[&str])] =
    &[("image/png", &["png"]), ("image/jpeg", &["jpg", "jpeg"]), ("image/gif", &["gif"]), ("image/webp", &["webp"])];

/// Returns the images among `attachments`. Skips images that cannot be read or are too large.
pub(crate) async fn read_images(sandbox: &dyn Sandbox, attachments: &[Attachment]) -> Vec<PromptImage> {
    let mut images = Vec::new();
    for attachment in attachments {
        let Some(mime) = media_type(attachment) else { continue };
        let Some(bytes) = bytes(sandbox, &attachment.path).await else {
            tracing::info!(path = %attachment.path, "skipping an image that cannot be read or is too large");
            continue;
        };
        let (path, mime) = (attachment.path.clone(), mime.to_owned());
        images.push(PromptImage { path, mime, data: STANDARD.encode(bytes) });
    }
    images
}

async fn bytes(sandbox: &dyn Sandbox, path: &str) -> Option<Vec<u8>> {
    let mut content = sandbox.files().read(Path::new(path), ByteRange::first(MAX_IMAGE_BYTES + 1)).await.ok()?;
    let mut bytes = Vec::new();
    content.bytes.read_to_end(&mut bytes).await.ok()?;
    Some(bytes).filter(|bytes| bytes.len() as u64 <= MAX_IMAGE_BYTES)
}

/// Returns the media type of an image, by its declared type or its file extension.
fn media_type(attachment: &Attachment) -> Option<&'static str> {
    let extension = Path::new(&attachment.path).extension().and_then(|extension| extension.to_str());
    let extension = extension.map(str::to_ascii_lowercase);
    let matches = |(mime, extensions): &&(&str, &[&str])| match &attachment.mime {
        Some(declared) => declared == mime,
        None => extension.as_deref().is_some_and(|extension| extensions.contains(&extension)),
    };
    MEDIA_TYPES.iter().find(matches).map(|(mime, _)| *mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_comes_from_declaration_or_extension() {
        for (path, mime, expected) in [
            ("a.png", None, Some("image/png")),
            ("a.JPG", None, Some("image/jpeg")),
            ("a.bin", Some("image/webp"), Some("image/webp")),
            ("a.png", Some("text/plain"), None),
            ("a.svg", Some("image/svg+xml"), None),
            ("png", None, None),
        ] {
            let attachment = Attachment { path: path.into(), mime: mime.map(str::to_owned), filename: None };
            assert_eq!(media_type(&attachment), expected, "{path} {mime:?}");
        }
    }
}
