//! Work that is done as the user inside, by a thread of its own.

use std::io;

use jail::HostUser;
use tokio::sync::oneshot;

/// Does `work` in a thread that may block: as `user`, where that is not the caller.
pub(crate) async fn as_user<T: Send + 'static>(
    user: Option<HostUser>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let Some(user) = user.filter(|user| user.is_somebody_else()) else {
        return tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    };
    // A thread that was somebody else is never anybody again: it ends with its work.
    let (tell, told) = oneshot::channel();
    let start = move || {
        let done = user.take_over_thread().map(|()| work());
        // Nobody waits any more.
        let _ = tell.send(done);
    };
    std::thread::Builder::new().name("viv-inside".to_owned()).spawn(start)?;
    told.await.map_err(io::Error::other)?
}
