//! A buffer of x86-64 instructions with labels and a pool of constants.

use std::collections::HashMap;

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

/// The address for which code is encoded. It contains only relative references, so it runs anywhere.
const BASE: u64 = 1 << 32;
/// Alignment of the code, which the constant pool precedes.
const ALIGNMENT: usize = 64;

/// A position in the code, bound later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label(usize);

/// Why code could not be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The encoder rejected an instruction: an operand of the wrong kind.
    #[error("cannot encode: {0}")]
    Encode(#[from] IcedError),
    /// An instruction needs more registers than the CPU has.
    #[error("out of registers")]
    Registers,
    /// A jump to a label without a position.
    #[error("a label was not bound")]
    Unbound,
}

/// Assembles instructions into a buffer. The first error is reported by [`Assembler::finish`].
pub struct Assembler {
    encoder: Encoder,
    /// The address of the next instruction.
    address: u64,
    labels: Vec<Option<u64>>,
    /// The address of a 32-bit distance, and the label it leads to.
    fixups: Vec<(u64, Label)>,
    constants: HashMap<Vec<u32>, u64>,
    /// The constants, the first one last: the pool grows downward from the code.
    pool: Vec<u32>,
    error: Option<AssembleError>,
}

impl Assembler {
    pub fn new() -> Assembler {
        Assembler {
            encoder: Encoder::new(64),
            address: BASE,
            labels: Vec::new(),
            fixups: Vec::new(),
            constants: HashMap::new(),
            pool: Vec::new(),
            error: None,
        }
    }

    /// Appends an instruction.
    pub fn push(&mut self, instruction: Result<Instruction, IcedError>) {
        let size = instruction.and_then(|instruction| self.encoder.encode(&instruction, self.address));
        match size {
            Ok(size) => self.address += size as u64,
            Err(error) => {
                self.error.get_or_insert(error.into());
            }
        }
    }

    /// Creates a label.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.address);
    }

    /// Appends a jump with a 32-bit distance: `Jmp_rel32_64` or one of the conditional ones.
    pub fn jump(&mut self, code: Code, label: Label) {
        // The distance is filled in at the end; it is the last field of the instruction.
        self.push(Instruction::with_branch(code, self.address));
        self.fixups.push((self.address - 4, label));
    }

    /// Returns an operand that reads a constant from the pool.
    pub fn constant(&mut self, value: u32) -> MemoryOperand {
        self.constants(&[value])
    }

    /// Returns an operand that reads adjacent constants from the pool.
    pub fn constants(&mut self, values: &[u32]) -> MemoryOperand {
        let address = match self.constants.get(values) {
            Some(address) => *address,
            None => {
                self.pool.extend(values.iter().rev());
                let address = BASE - 4 * self.pool.len() as u64;
                self.constants.insert(values.to_vec(), address);
                address
            }
        };
        MemoryOperand::with_base_displ(Register::RIP, address as i64)
    }

    /// Makes [`Assembler::finish`] fail.
    pub fn fail(&mut self, error: AssembleError) {
        self.error.get_or_insert(error);
    }

    /// Returns the offset of a bound label from the start of the code.
    pub fn offset(&self, label: Label) -> Option<usize> {
        self.labels[label.0].map(|address| (address - BASE) as usize)
    }

    /// Returns pool and code, and where the code begins in them.
    pub fn finish(mut self) -> Result<(Vec<u8>, usize), AssembleError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut code = self.encoder.take_buffer();
        for (at, label) in self.fixups {
            let target = self.labels[label.0].ok_or(AssembleError::Unbound)?;
            let distance = target.wrapping_sub(at + 4) as i32;
            let at = (at - BASE) as usize;
            code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.pool.resize((4 * self.pool.len()).next_multiple_of(ALIGNMENT) / 4, 0);
        let mut bytes: Vec<u8> = self.pool.iter().rev().flat_map(|value| value.to_le_bytes()).collect();
        let start = bytes.len();
        bytes.extend(code);
        Ok((bytes, start))
    }
}
