//! `strftime` for chat templates that include the date.

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Whether a year has 366 days.
fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Formats seconds since 1970, in UTC, as C's `strftime`. Unknown conversions are copied unchanged.
pub(super) fn strftime(format: &str, seconds: u64) -> String {
    // 400 years always have the same number of days: skip whole periods, count the rest.
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = (days + 4) % 7;
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let of_year = left + 1;
    let mut month = 0;
    for (number, length) in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate() {
        month = number;
        if left < length {
            break;
        }
        left -= length;
    }
    let (day, hour, minute) = (left + 1, second / 3600, second / 60 % 60);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut text = String::with_capacity(format.len() + 16);
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut letter = characters.next();
        // `%-d`: without padding.
        let bare = letter == Some('-');
        if bare {
            letter = characters.next();
        }
        let number = |value: u64, width: usize| if bare { value.to_string() } else { format!("{value:0width$}") };
        let piece = match letter {
            Some('Y') => number(year, 4),
            Some('y') => number(year % 100, 2),
            Some('m') => number(month as u64 + 1, 2),
            Some('d') => number(day, 2),
            Some('e') => format!("{day:2}"),
            Some('j') => number(of_year, 3),
            Some('H') => number(hour, 2),
            Some('I') => number(half, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second % 60, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => MONTHS[month].to_owned(),
            Some('b' | 'h') => MONTHS[month][..3].to_owned(),
            Some('A') => DAYS[weekday as usize].to_owned(),
            Some('a') => DAYS[weekday as usize][..3].to_owned(),
            Some('F') => format!("{year:04}-{:02}-{day:02}", month + 1),
            Some('T') => format!("{hour:02}:{minute:02}:{:02}", second % 60),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            other => ['%'].into_iter().chain(bare.then_some('-')).chain(other).collect(),
        };
        text.push_str(&piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn dates_match_c() {
        // From `date -u -d @SECONDS '+...'`.
        let all = "%A %a %d %-d %B %b %m %Y %y %j %H %I %M %S %p %F %T %e %%";
        assert_eq!(strftime(all, 0), "Thursday Thu 01 1 January Jan 01 1970 70 001 00 12 00 00 AM 1970-01-01 00:00:00  1 %");
        assert_eq!(strftime(all, 951_868_799), "Tuesday Tue 29 29 February Feb 02 2000 00 060 23 11 59 59 PM 2000-02-29 23:59:59 29 %");
        assert_eq!(strftime(all, 1_721_998_800), "Friday Fri 26 26 July Jul 07 2024 24 208 13 01 00 00 PM 2024-07-26 13:00:00 26 %");
        assert_eq!(strftime("%d %b %Y", 4_107_542_400), "01 Mar 2100");
        assert_eq!(strftime("%q %-q %", 0), "%q %-q %");
        // The largest time is computed quickly.
        assert!(strftime("%Y", u64::MAX).len() > 10);
    }
}
