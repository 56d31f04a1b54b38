//! The digits of a number, without the detour of formatting: they stand in every line of a ledger and in every answer.

/// Written into `buffer`, from its end.
pub fn digits(number: u64, buffer: &mut [u8; 20]) -> &str {
    let (mut at, mut rest) = (buffer.len(), number);
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    std::str::from_utf8(&buffer[at..]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_formatting() {
        for number in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX] {
            assert_eq!(digits(number, &mut [0; 20]), number.to_string());
        }
    }
}
