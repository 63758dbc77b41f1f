//! The bucket of one action. Pure: time and randomness are arguments.

use std::time::Duration;

use tokio::time::Instant;

use super::bucket_size::{BucketSize, Budget};

/// The pause after the first throttled call.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. During a pause nothing is sent, and after it a single call: one call in ten seconds does not
/// weigh on an account whose buckets refill by 5 to 20 calls a second, and a recovery is noticed soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// While calls wait, the part grows each time by this much of AWS's bucket.
const GROWTH: f64 = 0.05;
const GROWTH_PERIOD: Duration = Duration::from_secs(10);

/// After a time without a waiting call the part is the least again, so that each burst begins gently.
const QUIET: Duration = Duration::from_secs(60);

/// The part of AWS's bucket that this process takes.
#[derive(Debug)]
struct Part {
    budget: Budget,
    now: f64,
    /// When it last changed, or calls began to wait.
    changed: Instant,
    /// Until when a call last had to wait.
    waited: Option<Instant>,
}

impl Part {
    fn size(&self) -> BucketSize {
        self.budget.of_aws.part(self.now)
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.waited
            .is_none_or(|waited| now.saturating_duration_since(waited) >= QUIET)
    }

    fn rest(&mut self, now: Instant) {
        if self.is_quiet(now) {
            self.now = self.budget.least;
        }
    }

    /// A call has to wait for a token.
    fn wait(&mut self, now: Instant) {
        if self.is_quiet(now) {
            self.changed = now;
        }

        if now.saturating_duration_since(self.changed) >= GROWTH_PERIOD {
            self.now = f64::min(self.now + GROWTH, self.budget.most);
            self.changed = now;
        }
    }

    /// AWS throttles: others take more than this process has left to them.
    fn halve(&mut self, now: Instant) {
        self.now = f64::max(self.now / 2.0, self.budget.least);
        self.changed = now;
    }
}

/// The bucket of one action.
#[derive(Debug)]
pub(super) struct Bucket {
    part: Part,
    tokens: f64,
    /// The time up to which tokens were added. During a backoff it is in the future, and no tokens are added.
    counted: Instant,
    /// How long the last pause was meant to be; zero while AWS does not throttle.
    pause: Duration,
    /// When AWS last throttled a call.
    throttled: Option<Instant>,
}

impl Bucket {
    pub(super) fn full(budget: Budget, now: Instant) -> Self {
        let part = Part {
            budget,
            now: budget.least,
            changed: now,
            waited: None,
        };
        Self {
            tokens: part.size().capacity,
            part,
            counted: now,
            pause: Duration::ZERO,
            throttled: None,
        }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// The time of the next token.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        if now < self.counted {
            return Err(self.counted);
        }

        self.part.rest(now);
        let size = self.part.size();
        let new = (now - self.counted).as_secs_f64() * size.refill_rate;
        self.tokens = f64::min(self.tokens + new, size.capacity);
        self.counted = now;
        // Sums of fractions may end a hair below the whole.
        if self.tokens > 0.999_999 {
            self.tokens = f64::max(self.tokens - 1.0, 0.0);
            return Ok(());
        }

        self.part.wait(now);
        // At least a millisecond, the grain of timers.
        let missing = Duration::from_secs_f64((1.0 - self.tokens) / self.part.size().refill_rate);
        let due = now + missing.max(Duration::from_millis(1));
        self.part.waited = Some(due);
        Err(due)
    }

    /// The expected wait of a call after `ahead` other calls, if AWS throttles none of them.
    pub(super) fn expected_wait(&self, now: Instant, ahead: u32) -> Duration {
        let pause = self.counted.saturating_duration_since(now);
        let size = self.part.size();
        let new = now.saturating_duration_since(self.counted).as_secs_f64() * size.refill_rate;
        let missing = 1.0 + f64::from(ahead) - f64::min(self.tokens + new, size.capacity);
        if missing <= 1e-6 {
            return pause;
        }
        pause.saturating_add(Duration::try_from_secs_f64(missing / size.refill_rate).unwrap_or(Duration::MAX))
    }

    /// AWS throttled a call that was sent at `sent`: a pause, twice as long as the last one, then a single call.
    /// `random` in [0, 1) shortens it by up to a half, so that many processes do not come back together. Returns the
    /// pause, or `None` when the call was sent before the pause that there is.
    pub(super) fn throttled(&mut self, sent: Instant, now: Instant, random: f64) -> Option<Duration> {
        if self.throttled.is_some_and(|throttled| sent < throttled) {
            return None;
        }

        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);

        let pause = self.pause.mul_f64(1.0 - random / 2.0);
        self.part.halve(now);
        self.tokens = 1.0;
        self.counted = now + pause;
        self.throttled = Some(now);

        Some(pause)
    }

    /// AWS throttles other calls of the same account: this process leaves more to others.
    pub(super) fn halve(&mut self, now: Instant) {
        self.part.halve(now);
    }

    /// AWS answered a call that was sent at `sent`: the next pause would be shorter. Returns whether the trouble is over.
    pub(super) fn answered(&mut self, sent: Instant) -> bool {
        if self.throttled.is_none_or(|throttled| sent < throttled) {
            return false;
        }

        self.pause /= 2;
        if self.pause >= FIRST_PAUSE {
            return false;
        }

        self.pause = Duration::ZERO;
        self.throttled = None;

        true
    }

    /// Whether AWS throttles at present.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Budget = Budget {
        of_aws: BucketSize {
            capacity: 3.0,
            refill_rate: 2.0,
        },
        least: 1.0,
        most: 1.0,
    };

    fn taken(bucket: &mut Bucket, now: Instant) -> usize {
        std::iter::repeat_with(|| bucket.take(now))
            .take_while(Result::is_ok)
            .count()
    }

    #[test]
    fn a_full_bucket_holds_its_size_and_refills_steadily() {
        let start = Instant::now();
        let mut bucket = Bucket::full(SIZE, start);
        assert_eq!(taken(&mut bucket, start), 3);
        assert_eq!(bucket.take(start), Err(start + Duration::from_millis(500)));
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(1)), 2);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(100)), 3);
    }

    #[test]
    fn the_expected_wait_is_how_long_the_next_calls_do_wait() {
        let start = Instant::now();
        let mut bucket = Bucket::full(SIZE, start);
        assert_eq!(bucket.expected_wait(start, 2), Duration::ZERO);
        assert_eq!(bucket.expected_wait(start, 4), Duration::from_secs(1));
        taken(&mut bucket, start);
        assert_eq!(bucket.expected_wait(start, 0), Duration::from_millis(500));
        assert_eq!(
            bucket.expected_wait(start + Duration::from_millis(400), 0),
            Duration::from_millis(100)
        );
        let pause = bucket.throttled(start, start, 0.0).unwrap();
        assert_eq!(bucket.expected_wait(start, 0), pause);
        assert_eq!(bucket.expected_wait(start, 1), pause + Duration::from_millis(500));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_one_call_follows_each() {
        let mut now = Instant::now();
        let mut bucket = Bucket::full(SIZE, now);
        for wanted in [1, 2, 4, 8, 10, 10] {
            let pause = bucket.throttled(now, now, 0.0).unwrap();
            assert_eq!(pause, Duration::from_secs(wanted));
            assert!(bucket.take(now + pause - Duration::from_millis(1)).is_err());
            now += pause;
            assert_eq!(taken(&mut bucket, now), 1);
        }
    }

    #[test]
    fn calls_that_were_under_way_do_not_lengthen_a_pause_and_chance_shortens_it() {
        let start = Instant::now();
        let mut bucket = Bucket::full(SIZE, start);
        let later = start + Duration::from_millis(10);
        assert_eq!(bucket.throttled(start, later, 0.5), Some(Duration::from_millis(750)));
        assert_eq!(bucket.throttled(start, later, 0.5), None);
        assert!(!bucket.answered(start), "sent before AWS began to throttle");
    }

    /// The part of AWS's bucket, in hundredths, after so many seconds in which calls wait.
    fn part_after(bucket: &mut Bucket, now: &mut Instant, seconds: u32) -> f64 {
        for _ in 0..seconds * 10 {
            *now += Duration::from_millis(100);
            taken(bucket, *now);
        }
        (bucket.part.now * 100.0).round()
    }

    #[test]
    fn the_part_grows_while_calls_wait_and_a_throttle_halves_it() {
        let mut now = Instant::now();
        let budget = Budget {
            of_aws: BucketSize {
                capacity: 40.0,
                refill_rate: 10.0,
            },
            least: 0.25,
            most: 0.9,
        };
        let mut bucket = Bucket::full(budget, now);
        assert_eq!(taken(&mut bucket, now), 10);
        assert_eq!(part_after(&mut bucket, &mut now, 9), 25.0);
        assert_eq!(part_after(&mut bucket, &mut now, 2), 30.0);
        assert_eq!(part_after(&mut bucket, &mut now, 200), 90.0);

        let pause = bucket.throttled(now, now, 0.0).unwrap();
        assert_eq!(part_after(&mut bucket, &mut now, 9), 45.0);
        bucket.throttled(now, now, 0.0).unwrap();
        assert_eq!(part_after(&mut bucket, &mut now, 5), 25.0, "at least");

        part_after(&mut bucket, &mut now, 100);
        assert!(bucket.part.now > 0.5);
        now += QUIET + pause;
        assert_eq!(taken(&mut bucket, now), 10, "a burst begins with the least");
    }

    #[test]
    fn the_part_grows_although_a_token_takes_minutes() {
        let mut now = Instant::now();
        let budget = Budget {
            least: 0.001,
            most: 0.9,
            ..SIZE
        };
        let mut bucket = Bucket::full(budget, now);
        taken(&mut bucket, now);
        for _ in 0..3 {
            now = bucket.take(now).unwrap_err();
            assert_eq!(bucket.take(now), Ok(()));
        }
        assert!(bucket.part.now > 0.04, "{}", bucket.part.now);
    }

    #[test]
    fn the_part_does_not_grow_while_no_call_waits() {
        let mut now = Instant::now();
        let budget = Budget {
            least: 0.5,
            most: 0.9,
            ..SIZE
        };
        let mut bucket = Bucket::full(budget, now);
        for _ in 0..100 {
            now += Duration::from_secs(2);
            assert_eq!(bucket.take(now), Ok(()));
        }
        assert_eq!(bucket.part.now, 0.5);
    }

    #[test]
    fn answers_end_the_trouble_step_by_step() {
        let start = Instant::now();
        let mut bucket = Bucket::full(SIZE, start);
        bucket.throttled(start, start, 0.0);
        bucket.throttled(start, start, 0.0);
        assert!(!bucket.answered(start));
        assert!(bucket.is_throttled());
        assert!(bucket.answered(start));
        assert!(!bucket.is_throttled());
        assert_eq!(bucket.throttled(start, start, 0.0), Some(FIRST_PAUSE));
    }
}
