//! Work that is done to its end, also when nobody waits for it any more.
//!
//! It is done where it is waited for. Only who stops waiting leaves it to a task of its own: a task for each would do
//! the same, and cost a change of thread or two where nobody leaves, which is nearly always.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Does `work` to its end; `tasks` counts it until then.
pub fn detach_on_drop<W>(tasks: &TaskTracker, work: W) -> DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    DetachOnDrop { work: Some(Box::pin(work)), token: tasks.token() }
}

/// See [`detach_on_drop`].
pub struct DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    /// None once it is done, or has panicked.
    work: Option<Pin<Box<W>>>,
    token: TaskTrackerToken,
}

impl<W> Future for DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        // Out of its place while it is polled: what panics is not polled once more.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<W> Drop for DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            self.token.task_tracker().spawn(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn who_waits_gets_what_came_of_it() {
        let tasks = TaskTracker::new();
        assert_eq!(detach_on_drop(&tasks, async { tokio::task::yield_now().await }).await, ());
        assert_eq!(detach_on_drop(&tasks, async { 7 }).await, 7);
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn it_is_done_also_when_nobody_waits_any_more() {
        let tasks = TaskTracker::new();
        let (go, told) = oneshot::channel::<()>();
        let (done, heard) = oneshot::channel();
        let work = detach_on_drop(&tasks, async move {
            told.await.unwrap();
            done.send(()).unwrap();
        });
        let mut work = Box::pin(work);
        assert!(futures_util::poll!(work.as_mut()).is_pending());
        drop(work);
        assert_eq!(tasks.len(), 1, "it is counted until it is done");
        go.send(()).unwrap();
        heard.await.unwrap();
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn what_panicked_is_not_begun_again() {
        let tasks = TaskTracker::new();
        let work = detach_on_drop(&tasks, async { panic!("on purpose") });
        let joined: Result<(), _> = tokio::spawn(work).await;
        assert!(joined.unwrap_err().is_panic());
        assert!(tasks.is_empty());
    }
}
