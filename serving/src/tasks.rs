//! The tasks that run as long as the process. If one of them ended alone, what it did would be missing without a sign: a
//! cache that no watch fills any more, a status that nobody writes. So its end is the end of the process.

use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A task ended before the process. The process must exit.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    #[error("the task {0:?} returned before the process was stopped")]
    Returned(&'static str),
    #[error("the task {task:?} ended abnormally: {cause}")]
    Failed { task: &'static str, cause: JoinError },
}

/// Starts tasks. Clones belong together.
#[derive(Debug, Clone)]
pub struct Tasks {
    stop: CancellationToken,
    running: TaskTracker,
    ended: mpsc::UnboundedSender<TaskEnded>,
}

impl Tasks {
    /// The receiver has each task that ends before [`Self::stop`].
    pub fn new() -> (Self, mpsc::UnboundedReceiver<TaskEnded>) {
        let (ended, ended_rx) = mpsc::unbounded_channel();
        let (stop, running) = (CancellationToken::new(), TaskTracker::new());
        (Self { stop, running, ended }, ended_rx)
    }

    /// Ends the tasks when it is cancelled.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Starts a task that ends only after [`Self::stop`]. Must be called within a runtime.
    pub fn spawn(&self, task: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let (running, stop, ended) = (tokio::spawn(future), self.stop.clone(), self.ended.clone());
        self.running.spawn(async move {
            let why = match running.await {
                Ok(()) => TaskEnded::Returned(task),
                Err(cause) => TaskEnded::Failed { task, cause },
            };
            if !stop.is_cancelled() {
                // Nobody listens in tests of single tasks.
                let _ = ended.send(why);
            }
        });
    }

    /// Stops all tasks, and waits for their ends.
    pub async fn end(&self) {
        self.stop.cancel();
        self.running.close();
        self.running.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_returns_or_panics_is_reported_with_its_name_unless_all_are_stopped() {
        let (tasks, mut ended) = Tasks::new();
        tasks.spawn("nodes", async {});
        let why = ended.recv().await.unwrap().to_string();
        assert_eq!(why, "the task \"nodes\" returned before the process was stopped");

        tasks.spawn("status", async { panic!("an index") });
        let why = ended.recv().await.unwrap().to_string();
        assert!(
            why.contains("\"status\" ended abnormally") && why.contains("an index"),
            "{why}"
        );

        tasks.stop().cancel();
        tasks.spawn("late", async {});
        drop(tasks);
        assert!(ended.recv().await.is_none());
    }

    #[tokio::test]
    async fn the_end_waits_for_each_task() {
        let (tasks, mut ended) = Tasks::new();
        let (stop, (done, is_done)) = (tasks.stop().clone(), tokio::sync::oneshot::channel());
        tasks.spawn("nodes", async move {
            stop.cancelled().await;
            tokio::task::yield_now().await;
            done.send(()).unwrap();
        });

        tasks.end().await;
        is_done.await.unwrap();
        assert!(ended.try_recv().is_err());
    }
}
