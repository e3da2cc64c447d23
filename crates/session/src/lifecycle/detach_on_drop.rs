//! A future that is completed even when its caller stops waiting.
//!
//! The caller's task polls it. Only when the caller drops it does it move to a task of its own. A task for every call
//! would do the same, but would cost context switches in the usual case.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Returns a future that runs `work`, and moves it to a task of `tasks` when it is dropped unfinished.
pub fn detach_on_drop<W>(tasks: &TaskTracker, work: W) -> DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    DetachOnDrop { work: Some(Box::pin(work)), token: tasks.token() }
}

/// The future that [`detach_on_drop`] returns.
pub struct DetachOnDrop<W>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    /// `None` once the work is done or has panicked.
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
        // Taken out while it is polled, so that work that panicked is not polled again.
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
    async fn caller_that_waits_gets_the_output() {
        let tasks = TaskTracker::new();
        assert_eq!(detach_on_drop(&tasks, async { tokio::task::yield_now().await }).await, ());
        assert_eq!(detach_on_drop(&tasks, async { 7 }).await, 7);
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn dropped_future_is_completed() {
        let tasks = TaskTracker::new();
        let (go, started) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        let work = detach_on_drop(&tasks, async move {
            started.await.unwrap();
            done.send(()).unwrap();
        });
        let mut work = Box::pin(work);
        assert!(futures_util::poll!(work.as_mut()).is_pending());
        drop(work);
        assert_eq!(tasks.len(), 1, "unfinished work is not tracked");
        go.send(()).unwrap();
        finished.await.unwrap();
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn panicked_work_is_not_restarted() {
        let tasks = TaskTracker::new();
        let work = detach_on_drop(&tasks, async { panic!("on purpose") });
        let joined: Result<(), _> = tokio::spawn(work).await;
        assert!(joined.unwrap_err().is_panic());
        assert!(tasks.is_empty());
    }
}
