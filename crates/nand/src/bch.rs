//! Binary BCH codes over GF(2¹³), as Linux and controllers use them for NAND flash.
//!
//! [`Bch<T>`] corrects up to `T` flipped bits of a codeword, of 13 × `T` bits of parity and up to 8,191 bits in all. Parity is computed
//! of the inverted message and stored inverted: so bytes of 0xFF are a codeword, and an erased page reads as one, also with flipped bits.
//! With the same parity bytes as Linux's software BCH (`m` = 13, primitive polynomial 0x201B), which inverts them the same way.

/// Elements of the field without zero; also the most bits of a codeword.
const ORDER: usize = (1 << 13) - 1;
/// x¹³ + x⁴ + x³ + x + 1.
const PRIMITIVE: u16 = 0x201B;
/// The largest number of correctable bits whose parity fits 128 bits.
const MOST: usize = 9;

static FIELD: Field = Field::new();

/// Powers of the primitive element and their logarithms.
struct Field {
    powers: [u16; ORDER],
    logarithms: [u16; ORDER + 1],
}

impl Field {
    const fn new() -> Field {
        let (mut powers, mut logarithms) = ([0; ORDER], [0; ORDER + 1]);
        let (mut at, mut element) = (0, 1u16);
        while at < ORDER {
            powers[at] = element;
            logarithms[element as usize] = at as u16;
            element <<= 1;
            if element > ORDER as u16 {
                element ^= PRIMITIVE;
            }
            at += 1;
        }
        Field { powers, logarithms }
    }

    /// The primitive element to any power.
    const fn power(&self, exponent: usize) -> u16 {
        self.powers[exponent % ORDER]
    }

    /// The logarithm of an element that is not zero.
    const fn logarithm(&self, element: u16) -> usize {
        self.logarithms[element as usize] as usize
    }

    const fn product(&self, one: u16, other: u16) -> u16 {
        if one == 0 || other == 0 {
            return 0;
        }
        self.power(self.logarithm(one) + self.logarithm(other))
    }

    const fn quotient(&self, one: u16, other: u16) -> u16 {
        if one == 0 {
            return 0;
        }
        self.power(self.logarithm(one) + ORDER - self.logarithm(other))
    }
}

/// The code's generator polynomial without its first term, its coefficients in the upper bits: the product of x − αⁱ for all i that
/// are 1, 3, … 2 × `correctable` − 1 times a power of two.
const fn generator(correctable: usize) -> u128 {
    let field = Field::new();
    let mut coefficients = [0u16; 13 * MOST + 1];
    coefficients[0] = 1;
    let (mut degree, mut odd) = (0, 1);
    while odd < 2 * correctable {
        let mut root = odd;
        let mut conjugate = 0;
        while conjugate < 13 {
            let mut at = degree + 1;
            while at > 0 {
                coefficients[at] = coefficients[at - 1] ^ field.product(coefficients[at], field.power(root));
                at -= 1;
            }
            coefficients[0] = field.product(coefficients[0], field.power(root));
            degree += 1;
            root = root * 2 % ORDER;
            conjugate += 1;
        }
        odd += 2;
    }
    let (mut bits, mut at) = (0, 0);
    while at < degree {
        bits |= (coefficients[at] as u128) << (128 - degree + at);
        at += 1;
    }
    bits
}

const fn remainders(correctable: usize) -> [u128; 256] {
    let generator = generator(correctable);
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = (byte as u128) << 120;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder >> 127;
            remainder <<= 1;
            if carry == 1 {
                remainder ^= generator;
            }
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

/// More bits have flipped than the code corrects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more bits have flipped than the code corrects")]
pub struct Uncorrectable;

/// The code that corrects `T` bits, 1 to 9.
///
/// ```
/// use basalt_nand::Bch;
///
/// let mut data = [7; 512];
/// let mut parity = [0; Bch::<4>::PARITY_BYTES];
/// Bch::<4>::parity(&[&data], &mut parity);
/// data[100] ^= 0b0100_0001;
/// parity[3] ^= 1;
/// assert_eq!(Bch::<4>::correct(&mut [&mut data], &mut parity), Ok(3));
/// assert_eq!(data, [7; 512]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bch<const T: usize>;

impl<const T: usize> Bch<T> {
    /// Bits of parity.
    pub const PARITY_BITS: usize = {
        assert!(T >= 1 && T <= MOST, "1 to 9 bits can be corrected");
        13 * T
    };
    /// Bytes that hold the parity; the last bits of the last one are ones.
    pub const PARITY_BYTES: usize = Self::PARITY_BITS.div_ceil(8);
    /// The most bytes of a message.
    pub const MESSAGE_BYTES: usize = (ORDER - Self::PARITY_BITS) / 8;

    const REMAINDERS: [u128; 256] = remainders(T);

    /// Writes the parity of a message that lies in several pieces; together they have at most
    /// [`MESSAGE_BYTES`](Self::MESSAGE_BYTES). `parity` has [`PARITY_BYTES`](Self::PARITY_BYTES).
    pub fn parity(message: &[&[u8]], parity: &mut [u8]) {
        let inverted = !Self::remainder(message.iter().copied());
        parity.copy_from_slice(&inverted.to_be_bytes()[..Self::PARITY_BYTES]);
    }

    /// Sets flipped bits of a message and of its parity right, and returns how many there were. What is beyond repair stays as it is.
    /// With more than `T` flipped bits it is possible, though seldom, that another message is taken for the right one.
    pub fn correct(message: &mut [&mut [u8]], parity: &mut [u8]) -> Result<u32, Uncorrectable> {
        let mut stored = [0xFF; 16];
        stored[..Self::PARITY_BYTES].copy_from_slice(parity);
        // Bits behind the parity are nobody's.
        let used = u128::MAX << (128 - Self::PARITY_BITS);
        let difference = (Self::remainder(message.iter().map(|piece| &**piece)) ^ !u128::from_be_bytes(stored)) & used;
        if difference == 0 {
            return Ok(0);
        }
        let (locator, errors) = Self::locator(&Self::syndromes(difference))?;
        let bytes: usize = message.iter().map(|piece| piece.len()).sum();
        let mut places = [0; T];
        Self::roots(&locator[..=errors], 8 * bytes + Self::PARITY_BITS, &mut places[..errors])?;
        for place in &places[..errors] {
            flip(message, parity, *place);
        }
        Ok(errors as u32)
    }

    /// The message, inverted, times x to the number of parity bits, modulo the generator; in the upper bits.
    fn remainder<'a>(message: impl Iterator<Item = &'a [u8]>) -> u128 {
        let mut remainder = 0u128;
        for byte in message.flatten() {
            let first = (remainder >> 120) as u8 ^ !byte;
            remainder = (remainder << 8) ^ Self::REMAINDERS[usize::from(first)];
        }
        remainder
    }

    /// The polynomial of the errors at α, α³, …, and so at each power up to 2 × `T`: element `i` belongs to power `i` + 1.
    fn syndromes(difference: u128) -> [[u16; 2]; T] {
        let mut syndromes = [[0; 2]; T];
        for at in 0..Self::PARITY_BITS {
            if difference >> (128 - Self::PARITY_BITS + at) & 1 == 1 {
                for (index, pair) in syndromes.iter_mut().enumerate() {
                    pair[0] ^= FIELD.power(at * (2 * index + 1));
                }
            }
        }
        // Of a binary polynomial, the value at the square is the square of the value.
        for index in 0..T {
            let half = syndromes[index / 2][index % 2];
            syndromes[index][1] = FIELD.product(half, half);
        }
        syndromes
    }

    /// Berlekamp and Massey: the polynomial whose roots are the inverses of where errors are, and its degree.
    fn locator(syndromes: &[[u16; 2]; T]) -> Result<([u16; MOST + 1], usize), Uncorrectable> {
        let syndromes = syndromes.as_flattened();
        let (mut locator, mut previous) = ([0u16; 2 * MOST + 2], [0u16; 2 * MOST + 2]);
        (locator[0], previous[0]) = (1, 1);
        let (mut degree, mut shift, mut last) = (0, 1, 1u16);
        for step in 0..syndromes.len() {
            let mut discrepancy = 0;
            for at in 0..=degree {
                discrepancy ^= FIELD.product(locator[at], syndromes[step - at]);
            }
            if discrepancy == 0 {
                shift += 1;
                continue;
            }
            let before = locator;
            let factor = FIELD.quotient(discrepancy, last);
            for at in shift..locator.len() {
                locator[at] ^= FIELD.product(factor, previous[at - shift]);
            }
            if 2 * degree <= step {
                (degree, previous, last, shift) = (step + 1 - degree, before, discrepancy, 1);
            } else {
                shift += 1;
            }
        }
        if degree > T || locator[degree] == 0 {
            return Err(Uncorrectable);
        }
        let mut result = [0; MOST + 1];
        result[..=degree].copy_from_slice(&locator[..=degree]);
        Ok((result, degree))
    }

    /// Chien: finds the wrong bits of a codeword. They are counted from its first bit.
    fn roots(locator: &[u16], bits: usize, places: &mut [usize]) -> Result<(), Uncorrectable> {
        let mut found = 0;
        for power in 0..bits {
            let value = locator.iter().enumerate().fold(0, |value, (at, &coefficient)| {
                value ^ FIELD.product(coefficient, FIELD.power(at * (ORDER - power)))
            });
            if value == 0 {
                *places.get_mut(found).ok_or(Uncorrectable)? = bits - 1 - power;
                found += 1;
            }
        }
        if found == places.len() { Ok(()) } else { Err(Uncorrectable) }
    }
}

/// Inverts a bit of the codeword that is the message and then the parity.
fn flip(message: &mut [&mut [u8]], parity: &mut [u8], place: usize) {
    let (mut byte, mask) = (place / 8, 0x80 >> (place % 8));
    for piece in message {
        if let Some(found) = piece.get_mut(byte) {
            *found ^= mask;
            return;
        }
        byte -= piece.len();
    }
    parity[byte] ^= mask;
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;

    fn parity<const T: usize>(message: &[u8]) -> Vec<u8> {
        let mut parity = vec![0; Bch::<T>::PARITY_BYTES];
        Bch::<T>::parity(&[message], &mut parity);
        parity
    }

    /// What Linux's `lib/bch.c` computes with m = 13, and its software BCH for NAND then stores: inverted by the parity of a block of 0xFF.
    #[test]
    fn parity_is_what_linux_stores() {
        let counting: Vec<u8> = (0..=255).cycle().take(512).collect();
        let mut state = 1u32;
        let congruential = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345) & 0x7FFF_FFFF;
            (state >> 16) as u8
        });
        let congruential: Vec<u8> = congruential.take(521).collect();
        let messages = [vec![0; 512], counting, congruential];
        let of = |parity: fn(&[u8]) -> Vec<u8>| messages.each_ref().map(|message| hexadecimal(&parity(message)));
        assert_eq!(of(parity::<1>), ["0b8f", "7d0f", "d22f"]);
        assert_eq!(of(parity::<2>), ["f2053dff", "73d3bebf", "2df7d67f"]);
        assert_eq!(of(parity::<4>), ["2813cc3996ac7f", "c4c32c9ec768ef", "2c46e32a96b33f"]);
        assert_eq!(
            of(parity::<8>),
            ["ef512e09ed939ac29779e524b5", "46edc5b80cdebee92938a39761", "397b26e8c4b532ba6f7b3703cf"]
        );
    }

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Flips a number of different bits of message and parity, and repairs them.
    fn repaired<const T: usize>(rng: &mut Rng, length: usize, flips: usize) -> Result<u32, Uncorrectable> {
        let mut message = vec![0; length];
        rng.fill(&mut message);
        let correct = (message.clone(), parity::<T>(&message));
        let mut stored = correct.1.clone();
        let mut places = std::collections::BTreeSet::new();
        while places.len() < flips {
            places.insert(rng.index(length * 8 + Bch::<T>::PARITY_BITS));
        }
        let split = rng.index(length);
        let (first, second) = message.split_at_mut(split);
        for &place in &places {
            flip(&mut [first, second], &mut stored, place);
        }
        let found = Bch::<T>::correct(&mut [first, second], &mut stored)?;
        assert_eq!((message, stored), correct, "{flips} of {length} bytes");
        Ok(found)
    }

    fn up_to<const T: usize>(seed: u64) {
        let mut rng = Rng::new(seed);
        for round in 0..60 {
            let length = [512, 520, 16, Bch::<T>::MESSAGE_BYTES][round % 4];
            for flips in 0..=T {
                assert_eq!(repaired::<T>(&mut rng, length, flips), Ok(flips as u32), "seed {seed}");
            }
        }
    }

    #[test]
    fn as_many_bits_as_promised_are_set_right() {
        up_to::<1>(1);
        up_to::<2>(2);
        up_to::<4>(4);
        up_to::<8>(8);
        up_to::<9>(9);
    }

    /// One more than can be corrected is told: of codewords with five errors, few are within four of another.
    #[test]
    fn more_flipped_bits_are_hardly_ever_taken_for_fewer() {
        let mut rng = Rng::new(5);
        let mut taken = 0;
        for _ in 0..300 {
            let mut message = [0; 512];
            rng.fill(&mut message);
            let mut stored = parity::<4>(&message);
            let before = message;
            for place in [1, 700, 1900, 2000 + rng.index(1000), 4000] {
                flip(&mut [&mut message], &mut stored, place);
            }
            let damaged = message;
            match Bch::<4>::correct(&mut [&mut message], &mut stored) {
                Ok(_) => taken += 1,
                Err(Uncorrectable) => assert_eq!(message, damaged, "what is beyond repair stays"),
            }
            assert_ne!(before, message);
        }
        // The share of words within four bits of a codeword of 4148 bits: C(4148, 4) / 2⁵² is 0.3 %.
        assert!(taken < 10, "{taken}");
    }

    #[test]
    fn an_erased_block_is_a_codeword() {
        let mut message = [0xFF; 512];
        assert_eq!(parity::<8>(&message), [0xFF; 13]);
        message[77] = 0xF0;
        assert_eq!(Bch::<8>::correct(&mut [&mut message], &mut [0xFF; 13]), Ok(4));
        assert_eq!(message, [0xFF; 512]);
    }

    #[test]
    fn bits_behind_the_parity_do_not_matter() {
        let mut message = [3; 512];
        let mut stored = parity::<4>(&message);
        stored[6] &= 0xF0;
        assert_eq!(Bch::<4>::correct(&mut [&mut message], &mut stored), Ok(0));
    }
}
