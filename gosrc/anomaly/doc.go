// Package anomaly finds times in which more sessions wait than is usual.
//
// It sees one second of load after the other (history.Second), and says when an
// anomaly starts and ends. Looked at are nine series: all sessions that are not
// on CPU, and those of each wait event type but Activity (processes that have
// nothing to do). A type that is not known counts in the total only.
//
// # What is usual
//
// The statistic is the mean number of sessions over 10 s: long enough that the
// samples of one second do not matter, short enough to tell within half a
// minute. Its past is kept in buckets of the same 10 s.
//
//	expected  median of the last 10 minutes
//	scale     root of expected, or of the mean of the last hour when that is more
//	spread    median of |bucket - expected| / scale, as a standard deviation: the
//	          larger one of the last half hour and the last 6 hours
//	limit     expected + band * max(spread * scale + band * (spread / 2)^2,
//	                                1 session, expected / 12)
//
// Why not simply median and spread of a day: its swing would be the spread, and
// an incident at night would have to be larger than the day. A median of 10
// minutes lags 5 minutes behind. A load that swings over 24 hours has hardly
// moved in that time, one that swings within the hour has, and that is in the
// spread, since what is measured are the differences to just this median. The
// root: sessions that come and go at random vary with the root of their
// number, so what was learnt at night is good for the day. (The last hour in it:
// a swing within the hour rises fastest from below.) The square: few sessions
// vary more upwards than downwards, their root varies alike. Half an hour beside
// 6 hours: where the noise grows faster than that, it is seen early.
//
// The floors keep a quiet server from crying wolf (with the default band of 3,
// 3 sessions above what is usual) and a steady one, too (a quarter above). Both
// are multiples of anomaly_band, so that there is one knob.
//
// # Start and end
//
// It starts when the mean was above the limit for 20 s, and by one spread on
// average, or for as much longer as it is nearer: few sessions at random stay
// above for long, but not far above for long. started_at is when it
// began to be, less what the mean lags. It ends when it was below a lower limit
// (expected + 0.7 of the width) for 20 s. Two episodes less than half a minute
// apart are one. observed is the peak of the mean.
//
// While one is open its band stands still: nothing of it is learnt. That cannot
// be for ever: after 6 hours it is the usual load, and ends as new level. And
// the load goes on to swing below it: a load that rises over the day would
// never get below a limit of three hours ago. So the lower limit is let up by as
// much as the level usually (19 of 20 times in the last 31 hours) rises in that
// time, and once it has ended after more than 10 minutes the level is learnt
// anew from there.
//
// # One incident, one message
//
// Locks that pile up are out of their band, and so is the total. Both become
// rows. But only one is told, the first: the other counts as told by it when
// it is at least half of the same excess.
//
// # Gaps, restarts, clocks
//
// What is learnt is counted in buckets, not by the clock. Seconds that were not
// sampled are not there; a bucket of which less than half was sampled is left
// out. After a gap of 10 minutes the level is learnt anew (for one minute), the
// spread stays; an open anomaly goes on when it is still above its limit, after
// more than an hour it ends as unknown. A clock that is set back begins a new
// bucket, one that is set forward is a gap.
//
// State goes into the history, Restore takes it back in the next life, also
// late: what was learnt until then is added to it. An open anomaly stays the same.
//
// In the first hour of its life nothing is detected (360 buckets): before, it
// has not seen a swing within the hour.
//
// # Bounds
//
// A detector takes 21 kB, and while something is out of its band up to 64
// event names for each series. A second allocates nothing unless something
// starts or ends.
package anomaly
