//! The C locale's strftime over a local time that the caller gives.

use minijinja::{Error, ErrorKind};

/// As in C's `struct tm`, but with the whole year and months from 1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
    /// Days since Sunday.
    pub weekday: i32,
    /// From 0.
    pub day_of_year: i32,
}

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
];

fn hour_of_12(hour: i32) -> i32 {
    if hour % 12 == 0 {
        12
    } else {
        hour % 12
    }
}

fn days_of_year(year: i32) -> i32 {
    if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) {
        366
    } else {
        365
    }
}

/// Year and week of ISO 8601.
fn iso_week(now: &Time) -> (i32, i32) {
    let weekday = (now.weekday + 6) % 7;
    let week = (now.day_of_year - weekday + 10) / 7;
    // The weekday, from Monday, of the first day of a year that this day is the given one of.
    let first = |day_of_year: i32| (weekday - day_of_year).rem_euclid(7);
    let weeks_of = |year: i32, first_weekday: i32| {
        let long = first_weekday == 3 || (first_weekday == 2 && days_of_year(year) == 366);
        52 + i32::from(long)
    };
    if week < 1 {
        let before = now.year - 1;
        return (before, weeks_of(before, first(now.day_of_year + days_of_year(before))));
    }
    if week > weeks_of(now.year, first(now.day_of_year)) {
        return (now.year + 1, 1);
    }
    (now.year, week)
}

fn one(directive: char, unpadded: bool, now: &Time) -> Option<String> {
    let day = DAYS[now.weekday.rem_euclid(7) as usize];
    let month = MONTHS[(now.month - 1).rem_euclid(12) as usize];
    let two = |n: i32| if unpadded { n.to_string() } else { format!("{n:02}") };
    let three = |n: i32| if unpadded { n.to_string() } else { format!("{n:03}") };
    let blank = |n: i32| if unpadded { n.to_string() } else { format!("{n:2}") };
    let half = if now.hour < 12 { "AM" } else { "PM" };
    let all = |format: &str| expand(format, now);
    Some(match directive {
        'Y' => now.year.to_string(),
        'y' => two(now.year.rem_euclid(100)),
        'C' => two(now.year / 100),
        'm' => two(now.month),
        'd' => two(now.day),
        'e' => blank(now.day),
        'H' => two(now.hour),
        'I' => two(hour_of_12(now.hour)),
        'k' => blank(now.hour),
        'l' => blank(hour_of_12(now.hour)),
        'M' => two(now.minute),
        'S' => two(now.second),
        'f' => "000000".to_string(),
        'j' => three(now.day_of_year + 1),
        'p' => half.to_string(),
        'P' => half.to_lowercase(),
        'a' => day[..3].to_string(),
        'A' => day.to_string(),
        'b' | 'h' => month[..3].to_string(),
        'B' => month.to_string(),
        'u' => (if now.weekday == 0 { 7 } else { now.weekday }).to_string(),
        'w' => now.weekday.to_string(),
        'U' => two((now.day_of_year + 7 - now.weekday) / 7),
        'W' => two((now.day_of_year + 7 - (now.weekday + 6) % 7) / 7),
        'V' => two(iso_week(now).1),
        'G' => iso_week(now).0.to_string(),
        'g' => two(iso_week(now).0.rem_euclid(100)),
        'c' => all("%a %b %e %H:%M:%S %Y")?,
        'x' | 'D' => all("%m/%d/%y")?,
        'X' | 'T' => all("%H:%M:%S")?,
        'r' => all("%I:%M:%S %p")?,
        'R' => all("%H:%M")?,
        'F' => all("%Y-%m-%d")?,
        // datetime.now() knows no zone.
        'Z' | 'z' => String::new(),
        'n' => "\n".to_string(),
        't' => "\t".to_string(),
        '%' => "%".to_string(),
        _ => return None,
    })
}

fn expand(format: &str, now: &Time) -> Option<String> {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next()?;
        let unpadded = directive == '-';
        if unpadded {
            directive = chars.next()?;
        }
        out.push_str(&one(directive, unpadded, now)?);
    }
    Some(out)
}

pub fn strftime(format: &str, now: &Time) -> Result<String, Error> {
    expand(format, now).ok_or_else(|| {
        let message = format!("strftime_now: unknown directive in {format:?}");
        Error::new(ErrorKind::InvalidOperation, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_at_the_ends_of_years() {
        // 2027-01-01 is a Friday of 2026's week 53; 2024-12-30 is the Monday of 2025's week 1.
        let mut now = Time {
            year: 2027, month: 1, day: 1, hour: 0, minute: 5, second: 9, weekday: 5, day_of_year: 0,
        };
        assert_eq!(expand("%G-%V %U %W %-d %e %I %p", &now).unwrap(), "2026-53 00 00 1  1 12 AM");
        now = Time {
            year: 2024, month: 12, day: 30, weekday: 1, day_of_year: 364, hour: 13, ..now
        };
        assert_eq!(expand("%G-%V %j %a %B %l%P", &now).unwrap(), "2025-01 365 Mon December  1pm");
        assert!(expand("%Q", &now).is_none());
    }
}
