//! One message from the kernel.

use basalt_vfs::Bytes;
use zerocopy::FromBytes;

use super::operation::{self, Operation};
use super::wire::InHeader;

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Shorter than a header.
    #[error("message of {0} bytes: shorter than a header")]
    NoHeader(usize),
    /// The header's length is not the message's.
    #[error("message of {got} bytes says it has {says}")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes that the header promises.
        says: u32,
    },
    /// The arguments are too short for the operation, or a name has no end. The request can still be answered.
    #[error("arguments of {name} (request {unique}) are malformed")]
    Arguments {
        /// The request's name, for the reply.
        unique: u64,
        /// The operation.
        name: &'static str,
    },
}

/// A request: who asks, and what.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its header.
    pub header: InHeader,
    /// Its operation with the arguments decoded.
    pub operation: Operation<'a>,
    /// All bytes that it came with, if they may be kept.
    pub shared: Option<&'a Bytes>,
}

impl<'a> Request<'a> {
    /// Decodes one message. Total: any bytes give a request or a fault. An unknown opcode is
    /// [`Operation::Unknown`], since the kernel takes ENOSYS for an answer.
    pub fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| Fault::NoHeader(message.len()))?;
        if usize::try_from(header.len) != Ok(message.len()) {
            return Err(Fault::Length { got: message.len(), says: header.len });
        }
        let operation = operation::decode(header.opcode, rest)
            .ok_or_else(|| Fault::Arguments { unique: header.unique, name: operation::name(header.opcode) })?;
        Ok(Request { header, operation, shared: None })
    }
}

/// What is left of the arguments; every `Option` is `None` where they are too short.
pub(super) struct Arguments<'a>(pub(super) &'a [u8]);

impl<'a> Arguments<'a> {
    /// The next structure, copied out: the bytes need no alignment.
    pub(super) fn take<T: FromBytes>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }

    /// The next name, without the zero byte that ends it.
    pub(super) fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::protocol::wire::{ForgetOne, WriteIn};

    /// A message with a right header around `arguments`.
    fn message(opcode: u32, arguments: &[u8]) -> Vec<u8> {
        let len = (size_of::<InHeader>() + arguments.len()) as u32;
        let mut bytes = InHeader { len, opcode, unique: 7, node: 1, ..Default::default() }.as_bytes().to_vec();
        bytes.extend_from_slice(arguments);
        bytes
    }

    #[test]
    fn lookup_has_its_name() {
        let bytes = message(1, b"hello\0");
        let request = Request::parse(&bytes).unwrap();
        assert!(matches!(request.operation, Operation::Lookup { name: b"hello" }));
        assert_eq!(request.header.unique, 7);
    }

    #[test]
    fn a_name_without_an_end_is_a_fault_that_can_be_answered() {
        let bytes = message(1, b"hello");
        assert_eq!(Request::parse(&bytes).unwrap_err(), Fault::Arguments { unique: 7, name: "LOOKUP" });
    }

    #[test]
    fn write_has_exactly_the_data_it_announces() {
        let mut arguments = WriteIn { size: 3, offset: 9, ..Default::default() }.as_bytes().to_vec();
        arguments.extend_from_slice(b"abc");
        let bytes = message(16, &arguments);
        let Operation::Write { arguments, data } = Request::parse(&bytes).unwrap().operation else { panic!() };
        assert_eq!((arguments.offset, data), (9, &b"abc"[..]));
        let short = message(16, WriteIn { size: 3, ..Default::default() }.as_bytes());
        assert!(matches!(Request::parse(&short), Err(Fault::Arguments { name: "WRITE", .. })));
    }

    #[test]
    fn batch_forget_lists_what_is_there() {
        let mut arguments = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for node in [5, 6] {
            arguments.extend_from_slice(ForgetOne { node, count: node * 10 }.as_bytes());
        }
        let bytes = message(42, &arguments);
        let Operation::BatchForget(list) = Request::parse(&bytes).unwrap().operation else { panic!() };
        let list: Vec<_> = list.iter().map(|one| (one.node, one.count)).collect();
        assert_eq!(list, [(5, 50), (6, 60)]);
    }

    #[test]
    fn an_unknown_opcode_is_a_request() {
        let bytes = message(9999, b"");
        assert!(matches!(Request::parse(&bytes).unwrap().operation, Operation::Unknown));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
        }

        #[test]
        fn any_arguments_are_decoded_or_refused(
            opcode in 0u32..64,
            arguments in proptest::collection::vec(prop_oneof![Just(0u8), 1u8..20, any::<u8>()], 0..160),
            skew in 0usize..8,
        ) {
            let whole = message(opcode, &arguments);
            let mut shifted = vec![0; skew];
            shifted.extend_from_slice(&whole);
            match Request::parse(&shifted[skew..]) {
                Ok(request) => {
                    if let Operation::BatchForget(list) = request.operation {
                        prop_assert!(list.iter().count() <= arguments.len() / 16);
                    }
                    if let Operation::SetXattr(body) = request.operation {
                        let _ = (body.decode(false), body.decode(true));
                    }
                }
                Err(fault) => {
                    prop_assert!(matches!(fault, Fault::Arguments { unique: 7, .. }), "{}", fault);
                }
            }
        }
    }
}
