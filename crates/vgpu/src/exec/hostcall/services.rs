//! The hostcall services: `printf` messages and memory allocation.

use std::collections::HashMap;

use super::buffer::SLOTS;
use super::format;
use crate::memory::Memory;

// Service numbers of the device library.
const CALL: u32 = 1;
const PRINT: u32 = 2;
const MEMORY: u32 = 3;

// Fields of a message's descriptor: begin and end flags, number of words, message number.
const BEGIN: u64 = 1;
const END: u64 = 2;
const LENGTH: u32 = 5;
const NUMBER: u32 = 8;
/// In the first word of a message: print to the error stream.
const ERROR_STREAM: u64 = 1;

/// The most words of all unfinished messages together.
const MAX_WORDS: usize = 1 << 24;

/// Unfinished messages, and what was printed last.
#[derive(Default)]
pub struct Services {
    messages: HashMap<u64, Vec<u64>>,
    next: u64,
    words: usize,
    last: String,
    last_error: String,
}

impl Services {
    /// Serves one lane's request and returns its result; the error says why the request is not supported.
    pub fn serve(&mut self, service: u32, slots: &[u64; SLOTS], memory: &Memory, print: &dyn Fn(&str)) -> Result<u64, String> {
        match service {
            PRINT => self.message(slots, print),
            MEMORY => match (slots[0], slots[1]) {
                (0, bytes) => Ok(memory.heap_allocate(bytes)),
                (address, _) if memory.heap_free(address) => Ok(0),
                (address, _) => Err(format!("free({address:#x}): the address was not allocated by malloc in a kernel")),
            },
            CALL => Err("hostcall to a host function is not supported".to_owned()),
            other => Err(format!("unknown hostcall service {other}")),
        }
    }

    fn message(&mut self, slots: &[u64; SLOTS], print: &dyn Fn(&str)) -> Result<u64, String> {
        let descriptor = slots[0];
        let number = if descriptor & BEGIN != 0 {
            self.next += 1;
            self.messages.insert(self.next, Vec::new());
            self.next
        } else {
            descriptor >> NUMBER
        };
        let Some(message) = self.messages.get_mut(&number) else {
            return Err(format!("hostcall continues message {number}, which was never started"));
        };
        let length = (descriptor >> LENGTH) as usize & (SLOTS - 1);
        message.extend_from_slice(&slots[1..=length]);
        // One more for the message itself, so that empty messages count.
        self.words += length + usize::from(descriptor & BEGIN != 0);
        if self.words > MAX_WORDS {
            return Err(format!("unfinished hostcall messages exceed {} MiB", MAX_WORDS >> 17));
        }
        if descriptor & END == 0 {
            return Ok(number << NUMBER);
        }
        let message = self.messages.remove(&number).unwrap_or_default();
        self.words -= message.len() + 1;
        let Some((control, words)) = message.split_first() else { return Ok(0) };
        let bytes = format::format(words);
        let text = String::from_utf8_lossy(&bytes);
        print(&text);
        let last = if control & ERROR_STREAM != 0 { &mut self.last_error } else { &mut self.last };
        last.clear();
        last.push_str(text.trim_end());
        Ok(bytes.len() as u64)
    }

    /// Returns what was printed last: on the error stream, if anything was.
    pub fn last_message(&self) -> String {
        if self.last_error.is_empty() { self.last.clone() } else { self.last_error.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn send(services: &mut Services, slots: &[u64], printed: &RefCell<Vec<String>>) -> Result<u64, String> {
        let mut all = [0; SLOTS];
        all[..slots.len()].copy_from_slice(slots);
        services.serve(PRINT, &all, &Memory::new(), &|text| printed.borrow_mut().push(text.to_owned()))
    }

    #[test]
    fn a_message_is_assembled_from_its_packets() {
        let (mut services, printed) = (Services::default(), RefCell::default());
        let first = send(&mut services, &[BEGIN | 1 << LENGTH, 0], &printed).unwrap();
        let second = send(&mut services, &[BEGIN | 1 << LENGTH, ERROR_STREAM], &printed).unwrap();
        let text = u64::from_le_bytes(*b"<%d>\n\0\0\0");
        send(&mut services, &[first | 1 << LENGTH, text], &printed).unwrap();
        assert_eq!(send(&mut services, &[second | END | 2 << LENGTH, text, 5], &printed), Ok(4));
        assert_eq!(send(&mut services, &[first | END | 1 << LENGTH, 42], &printed), Ok(5));
        assert_eq!(*printed.borrow(), ["<5>\n", "<42>\n"]);
        assert_eq!(services.last_message(), "<5>");
        assert_eq!((services.words, services.messages.len()), (0, 0));
    }

    #[test]
    fn invalid_messages_and_services_are_errors() {
        let (mut services, printed) = (Services::default(), RefCell::default());
        assert!(send(&mut services, &[7 << NUMBER | 1 << LENGTH, 0], &printed).unwrap_err().contains("message 7"));
        assert_eq!(send(&mut services, &[BEGIN | END], &printed), Ok(0));
        let number = send(&mut services, &[BEGIN], &printed).unwrap();
        let endless = (0..MAX_WORDS).find_map(|_| send(&mut services, &[number | 7 << LENGTH], &printed).err());
        assert!(endless.unwrap().contains("128 MiB"));
        let slots = [0x1000, 0, 0, 0, 0, 0, 0, 0];
        let error_of = |services: &mut Services, service| services.serve(service, &slots, &Memory::new(), &|_| ()).unwrap_err();
        assert!(error_of(&mut services, CALL).contains("host function"));
        assert!(error_of(&mut services, MEMORY).contains("0x1000"));
        assert!(error_of(&mut services, 9).contains("service 9"));
    }
}
