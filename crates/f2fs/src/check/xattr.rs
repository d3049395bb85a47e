//! A list of extended attributes.

use zerocopy::FromBytes;

use crate::layout::xattr::{HEADER_SIZE, MAGIC, RawXattrEntry, RawXattrHeader};

/// Walks the list in `bytes` (inline part and node together); an error says in words what is wrong.
pub(super) fn check_list(bytes: &[u8]) -> Result<(), String> {
    let Ok((header, entries)) = RawXattrHeader::read_from_prefix(bytes) else {
        return Err(format!("only {} bytes of room", bytes.len()));
    };
    let mut at = 0;
    while let Some(word) = entries.get(at..at + 4)
        && word != [0; 4]
    {
        // The word has just been cut out: four bytes, the size of the fixed part.
        let Ok(entry) = RawXattrEntry::read_from_bytes(word) else { break };
        let size = size_of::<RawXattrEntry>() + usize::from(entry.e_name_len) + usize::from(entry.e_value_size.get());
        if header.h_magic.get() != MAGIC {
            return Err(format!("magic {:#010x} in front of attributes", header.h_magic.get()));
        }
        if entry.e_name_index == 0 {
            return Err(format!("an attribute of no namespace at byte {}", HEADER_SIZE + at));
        }
        at += size.next_multiple_of(4);
        if at > entries.len() {
            return Err(format!("an attribute of {size} bytes that ends {} bytes past its room", at - entries.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn list(entries: &[u8], room: usize) -> Vec<u8> {
        let mut bytes = [MAGIC.to_le_bytes().as_slice(), &[0; 20], entries].concat();
        bytes.resize(room, 0);
        bytes
    }

    #[test]
    fn lists_are_walked_to_their_end() {
        assert_eq!(check_list(&[0; 200]), Ok(()));
        assert_eq!(check_list(&list(&[1, 3, 5, 0, b'a', b'b', b'c', 1, 2, 3, 4, 5], 200)), Ok(()));
        assert!(check_list(&list(&[1, 3, 0xFF, 0xFF], 200)).is_err());
        assert!(check_list(&list(&[0, 3, 1, 0], 200)).is_err());
        assert!(check_list(&[0; 10]).is_err());
        let mut bad = list(&[1, 0, 0, 0], 200);
        bad[0] = 9;
        assert!(check_list(&bad).is_err());
        // Exactly full: no room for an end mark is needed.
        assert_eq!(check_list(&list(&[1, 4, 0, 0, 1, 2, 3, 4], 32)), Ok(()));
        assert!(RawXattrEntry::read_from_bytes(&[0; 4]).is_ok_and(|entry| entry.as_bytes() == [0; 4]));
    }
}
