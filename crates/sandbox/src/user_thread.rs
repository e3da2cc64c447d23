//! Running work as the sandbox user, on a thread that switches to that user.

use std::io;

use jail::HostUser;
use tokio::sync::oneshot;

/// Runs blocking `work` on another thread, as `user` if that is not the calling user. Returns its result.
pub(crate) async fn run_as_user<T: Send + 'static>(
    user: Option<HostUser>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let Some(user) = user.filter(|user| user.differs_from_caller()) else {
        return tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    };
    // A thread cannot switch back to its user, so it ends with its work.
    let (sender, receiver) = oneshot::channel();
    let start = move || {
        let result = user.switch_thread().map(|()| work());
        // Sending fails when the caller no longer waits.
        let _ = sender.send(result);
    };
    std::thread::Builder::new().name("viv-inside".to_owned()).spawn(start)?;
    receiver.await.map_err(io::Error::other)?
}
