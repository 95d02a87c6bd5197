//! Days of the Gregorian calendar, for times that come as digits.

/// Days from 1970-01-01. The year begins in March here, so that the leap day is its last.
#[must_use]
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let before_month = (153 * month + 2) / 5;
    year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + before_month
        + day
        - 1
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_count() {
        for (date, count) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2100, 3, 1), 47_541),
            ((1969, 12, 31), -1),
        ] {
            assert_eq!(days(date.0, date.1, date.2), count, "{date:?}");
        }
    }
}
