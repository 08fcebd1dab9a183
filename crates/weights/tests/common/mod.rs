//! Files made byte by byte, without the code under test.
#![allow(dead_code)]

/// Makes a GGUF file; nothing is checked.
#[derive(Default)]
pub struct Builder {
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Builder {
    /// A key with the number of its type and its value.
    pub fn raw_key(mut self, key: &str, value: &[u8]) -> Builder {
        self.keys.push([&text(key), value].concat());
        self
    }

    pub fn key(self, key: &str, value: u32) -> Builder {
        self.raw_key(key, &[4u32.to_le_bytes(), value.to_le_bytes()].concat())
    }

    pub fn str(self, key: &str, value: &str) -> Builder {
        self.raw_key(key, &[&8u32.to_le_bytes()[..], &text(value)].concat())
    }

    /// A tensor, its dimensions as in the file: innermost first.
    pub fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Builder {
        let mut tensor = text(name);
        tensor.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| tensor.extend(dim.to_le_bytes()));
        tensor.extend(kind.to_le_bytes());
        tensor.extend(offset.to_le_bytes());
        self.tensors.push(tensor);
        self
    }

    pub fn data(mut self, data: Vec<u8>) -> Builder {
        self.data = data;
        self
    }

    pub fn build(self, version: u32) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        out
    }
}

/// A small file with something of everything.
pub fn small_gguf(version: u32) -> Vec<u8> {
    let mut tokens = [9u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    tokens.extend(3u64.to_le_bytes());
    ["a", "", "ü▁"].iter().for_each(|token| tokens.extend(text(token)));
    let mut types = [9u32.to_le_bytes(), 5u32.to_le_bytes()].concat();
    types.extend(3u64.to_le_bytes());
    [1i32, -2, 3].iter().for_each(|number| types.extend(number.to_le_bytes()));
    let mut nested = [9u32.to_le_bytes(), 9u32.to_le_bytes()].concat();
    nested.extend(2u64.to_le_bytes());
    for length in [2u64, 0] {
        nested.extend(0u32.to_le_bytes());
        nested.extend(length.to_le_bytes());
        nested.extend(vec![1; length as usize]);
    }
    let mut data: Vec<u8> = [1f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
    data.resize(32, 0);
    data.extend([7; 4 * 34]);
    Builder::default()
        .str("general.architecture", "llama")
        .raw_key("tokens", &tokens)
        .key("count", 7)
        .raw_key("eps", &[6u32.to_le_bytes(), 0.5f32.to_le_bytes()].concat())
        .raw_key("types", &types)
        .raw_key("flag", &[7, 0, 0, 0, 1])
        .raw_key("nested", &nested)
        .tensor("a", &[3], 0, 0)
        .tensor("b", &[64, 2], 8, 32)
        .data(data)
        .build(version)
}

/// A safetensors file: the header's text and the data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A small file of two tensors.
pub fn small_safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[12,20]}}"#;
    safetensors(header, &(0..20).collect::<Vec<u8>>())
}
