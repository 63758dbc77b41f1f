//! How every write to AWS is sent.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use outrigger_aws::limit::WaitFlag;
use outrigger_aws::{Error, Kind};
use outrigger_leader::{ANSWER, NotLeader, Permit};
use tokio::time::{Instant, sleep};

/// How long one write may take, the SDK's own repetitions included.
const LIMIT: Duration = Duration::from_secs(30);

/// How often a write that waits for budget asks whether it may still be sent.
const LOOK: Duration = Duration::from_secs(1);

/// Sends a write while `permit` is valid. The deadline is the permit's end at the time of sending, or [`ANSWER`]. Before that,
/// the write may wait for a token of AWS's rate limit as long as the permit is renewed. The HTTP client asks the permit at
/// the moment of each send, those of the SDK's own repetitions included. A write without a response may have taken
/// effect; the next describe shows it.
///
/// # Errors
/// [`NotLeader`] when the write was not sent, or was cut off because the permit ended.
pub async fn write<T>(
    permit: &Permit,
    action: &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, NotLeader> {
    let sender = permit.clone();
    let turn = WaitFlag::of(move || sender.may_continue());
    let noted = async {
        let answer = bounded(permit, &turn, call).await?;
        let answer = answer.unwrap_or_else(|| Err(Error::unanswered(action, "AWS did not answer in time")));
        let was_refused = turn.was_refused() && answer.is_err();
        let is_transport = answer.as_ref().is_err_and(|error| error.kind() == Kind::Transport);
        // While the write still counts as in flight: the lease is released only after that.
        if turn.has_unanswered_attempt() || is_transport && !was_refused {
            permit.note_unanswered();
        }

        if was_refused { Err(NotLeader) } else { Ok(answer) }
    };
    let is_unsent = || turn.is_waiting() && !turn.has_unanswered_attempt();

    permit.guard_sends(noted, is_unsent).await?
}

/// The call's answer, or `None` when there was none in time. The time counts from when the call stops waiting for its
/// turn; one whose permit is closed while it waits is never sent.
async fn bounded<T>(permit: &Permit, turn: &WaitFlag, call: impl Future<Output = T>) -> Result<Option<T>, NotLeader> {
    let (mut call, mut end) = (pin!(turn.run(call)), pin!(sleep(Duration::ZERO)));
    let mut sent = false;

    std::future::poll_fn(|context| {
        if turn.is_waiting() {
            permit.check()?;
        }

        if let Poll::Ready(answer) = call.as_mut().poll(context) {
            return Poll::Ready(Ok(Some(answer)));
        }

        if turn.is_waiting() {
            sent = false;
            end.as_mut().reset(Instant::now() + LOOK);
        } else if !sent {
            sent = true;
            let limit = permit.remaining().map_or(LIMIT, |left| (left + ANSWER).min(LIMIT));
            end.as_mut().reset(Instant::now() + limit);
        }

        end.as_mut().poll(context).map(|()| Ok(None))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outrigger_aws::Elb;
    use outrigger_aws::fake::FakeAws;
    use outrigger_aws::limit::{Limited, Share, attempt_unanswered, may_send};
    use outrigger_leader::Fence;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_aws_that_never_answers_does_not_outlast_the_permit() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(5));
        let started = Instant::now();
        let never = std::future::pending::<Result<(), Error>>();
        assert!(!matches!(write(&permit, "CreateRoute", never).await, Ok(Ok(()))));
        assert!(started.elapsed() <= Duration::from_secs(5));
        assert!(grantor.unanswered_within(Duration::from_secs(60)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_nothing_is_sent() {
        let (_grantor, permit) = Permit::pair();
        let mut sent = false;
        let call = async {
            sent = true;
            Ok(())
        };
        assert!(write(&permit, "CreateRoute", call).await.is_err());
        assert!(!sent);
    }

    /// AWS whose budget of new subnets of load balancers, one in five seconds, is used up for the next minute.
    async fn used_up(aws: &Arc<FakeAws>) -> Arc<dyn Elb> {
        let elb: Arc<dyn Elb> = Arc::new(Limited::elb(aws.clone(), Share::default()));
        for _ in 0..10 {
            assert!(
                elb.attach_subnets("a1", &[]).await.is_err(),
                "there is no such load balancer"
            );
        }
        for _ in 0..11 {
            let waiting = Arc::clone(&elb);
            tokio::spawn(async move { waiting.attach_subnets("a1", &[]).await });
            tokio::task::yield_now().await;
        }
        elb
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_may_wait_for_budget_longer_than_for_an_answer() {
        let aws = Arc::new(FakeAws::default());
        let elb = used_up(&aws).await;
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        let renewals = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(2)).await;
                grantor.extend(Instant::now() + Duration::from_secs(10));
            }
        });
        let started = Instant::now();
        let answer = write(&permit, "AttachLoadBalancerToSubnets", elb.attach_subnets("a1", &[])).await;
        let error = answer.unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "AWS has answered: {error}");
        assert_eq!(started.elapsed().as_secs(), 60);
        renewals.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_is_not_sent_once_the_permit_is_closed() {
        let aws = Arc::new(FakeAws::default());
        let elb = used_up(&aws).await;
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(600));
        let close = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            grantor.close();
        };
        let started = Instant::now();
        let call = elb.attach_subnets("a2", &[]);
        let (answer, ()) = tokio::join!(write(&permit, "AttachLoadBalancerToSubnets", call), close);
        assert!(answer.is_err());
        assert!(started.elapsed() <= Duration::from_secs(22), "{:?}", started.elapsed());
        assert!(aws.calls().iter().all(|call| call.about.starts_with("a1")));
    }

    /// As the HTTP client does: asks before it sends, and answers after this time.
    async fn sent(takes: Duration) -> Result<(), Error> {
        if !may_send() {
            return Err(Error::unanswered("A", "not sent"));
        }
        sleep(takes).await;
        Ok(())
    }

    /// The in-tree lease was renewed ten seconds ago, a moment after a write was sent.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_sent_before_the_fence_ended_is_answered_and_no_other_is_sent() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(600));
        let ends = Some(Instant::now() + Duration::from_millis(5));
        let (_fence, open) = tokio::sync::watch::channel(Fence { is_open: true, ends });
        let permit = permit.within(open);
        let answer = write(&permit, "CreateRoute", sent(Duration::from_millis(100))).await;
        assert!(matches!(answer, Ok(Ok(()))), "{answer:?}");
        assert!(!grantor.unanswered_within(Duration::MAX));

        // Its credentials come too late.
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(600));
        let ends = Some(Instant::now() + Duration::from_millis(5));
        let (_fence, open) = tokio::sync::watch::channel(Fence { is_open: true, ends });
        let late = async {
            sleep(Duration::from_secs(1)).await;
            sent(Duration::ZERO).await
        };
        assert!(write(&permit.within(open), "CreateRoute", late).await.is_err());
        assert!(!grantor.unanswered_within(Duration::MAX));
    }

    /// The SDK has repeated a request whose connection broke, and AWS throttles the second one.
    #[tokio::test(start_paused = true)]
    async fn an_earlier_attempt_without_an_answer_counts() {
        for is_cut_off in [false, true] {
            let (grantor, permit) = Permit::pair();
            grantor.extend(Instant::now() + Duration::from_secs(600));
            let call = async {
                attempt_unanswered();
                if is_cut_off {
                    std::future::pending::<()>().await;
                }
                Err::<(), _>(Error::answered("A", "Throttling", "Rate exceeded"))
            };
            let closing = async {
                sleep(Duration::from_millis(10)).await;
                grantor.revoke();
            };
            let _ = tokio::join!(write(&permit, "CreateRoute", call), closing);
            assert!(grantor.unanswered_within(Duration::MAX), "cut off: {is_cut_off}");
        }
    }

    /// Another process acquires the in-tree lease while a write waits for budget: our lease must be released, not expire.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_cut_off_while_it_waits_for_budget_is_not_unanswered() {
        let elb = used_up(&Arc::default()).await;
        for is_dropped in [false, true] {
            let (grantor, permit) = Permit::pair();
            grantor.extend(Instant::now() + Duration::from_secs(600));
            let (fence, closed) = tokio::sync::watch::channel(Fence::OPEN);
            let permit = permit.within(closed);
            let close = async {
                sleep(Duration::from_millis(1500)).await;
                if !is_dropped {
                    let (is_open, ends) = (false, Some(Instant::now()));
                    fence.send_replace(Fence { is_open, ends });
                    std::future::pending().await
                }
            };
            tokio::select! {
                answer = write(&permit, "AttachLoadBalancerToSubnets", elb.attach_subnets("a2", &[])) => {
                    assert!(!is_dropped && answer.is_err());
                }
                () = close => {}
            }
            assert!(!grantor.unanswered_within(Duration::MAX), "dropped: {is_dropped}");
        }
    }

    /// Classic load balancers of an AWS that throttles the first write.
    fn throttled_at_first(aws: &Arc<FakeAws>) -> Arc<dyn Elb> {
        aws.fail_next(
            "AttachLoadBalancerToSubnets",
            Error::answered("A", "Throttling", "Rate exceeded"),
        );
        Arc::new(Limited::elb(aws.clone(), Share::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_write_is_sent_again_while_the_permit_lasts() {
        let aws = Arc::new(FakeAws::default());
        let elb = throttled_at_first(&aws);
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        let answer = write(&permit, "AttachLoadBalancerToSubnets", elb.attach_subnets("a1", &[])).await;
        assert_eq!(answer.unwrap().unwrap_err().kind(), Kind::NotFound);
        assert_eq!(aws.calls().len(), 2);
        assert!(!grantor.unanswered_within(Duration::from_secs(60)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_write_is_not_sent_again_once_the_permit_is_closed() {
        for revoked in [false, true] {
            let aws = Arc::new(FakeAws::default());
            let elb = throttled_at_first(&aws);
            let (grantor, permit) = Permit::pair();
            grantor.extend(Instant::now() + Duration::from_secs(600));
            let end = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if revoked { grantor.revoke() } else { grantor.close() }
            };
            let started = Instant::now();
            let call = elb.attach_subnets("a1", &[]);
            let (answer, ()) = tokio::join!(write(&permit, "AttachLoadBalancerToSubnets", call), end);
            assert!(answer.is_err());
            assert!(
                started.elapsed() < Duration::from_millis(1100),
                "{:?}",
                started.elapsed()
            );
            assert_eq!(aws.calls().len(), 1, "revoked: {revoked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_permit_is_asked_before_each_send_also_when_there_is_a_token() {
        let aws = Arc::new(FakeAws::default());
        let elb: Arc<dyn Elb> = Arc::new(Limited::elb(aws.clone(), Share::default()));
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(600));
        let sent_twice = async {
            elb.attach_subnets("a1", &[]).await.unwrap_err();
            grantor.close();
            elb.attach_subnets("a1", &[]).await
        };
        assert!(write(&permit, "AttachLoadBalancerToSubnets", sent_twice).await.is_err());
        assert_eq!(aws.calls().len(), 1);
    }
}
