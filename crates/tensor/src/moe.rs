//! Mixture of experts: routing tokens, and matrix products with each token's experts.

use warpwave_kernels::{DType, ExpertTiles, Quant, Routing};

use crate::backend::{Backend, ExpertOrder, GroupedArgs, OperandMut};
use crate::cpu::Precision;
use crate::device::Device;
use crate::error::{Result, shape, wrong_device, wrong_type};
use crate::linear::Matrix;
use crate::ops::check_float;
use crate::tensor::Tensor;

/// The experts of each token of a step, and their weights.
pub struct ExpertChoice {
    /// `u32` of (tokens, used).
    ids: Tensor,
    /// `f32` of (tokens, used).
    weights: Tensor,
    experts: usize,
    /// Assignments by expert, which GPUs need: the order, the tiles, and their rows.
    order: Option<(Tensor, Tensor, usize)>,
}

/// The matrices of all experts of a layer, with a bias each.
#[derive(Debug, Clone)]
pub struct Experts {
    /// One matrix below the other; on the CPU, quantized ones are apart.
    parts: Vec<Matrix>,
    experts: usize,
    rows: usize,
    columns: usize,
    bias: Option<Tensor>,
}

impl Tensor {
    /// Chooses experts by router logits, `f32` of (tokens, experts). `bias`, `f32` of (experts), is added to the scores for the choice only.
    pub fn route(&self, routing: &Routing, bias: Option<&Tensor>) -> Result<ExpertChoice> {
        let op = "moe_route";
        let [tokens, experts] = *self.shape() else {
            return Err(shape(op, format!("expected logits of (tokens, experts), got {:?}", self.shape())));
        };
        if self.dtype() != DType::F32 {
            return Err(wrong_type(op, "the logits", self.dtype(), "f32"));
        }
        routing.check(experts)?;
        if let Some(bias) = bias {
            self.check_same_kind(op, "the bias", bias)?;
            if bias.shape() != [experts] {
                return Err(shape(op, format!("expected a bias of shape [{experts}], got {:?}", bias.shape())));
            }
        }
        let (device, logits) = (self.device(), self.contiguous()?);
        let to = [tokens, routing.used];
        let mut ids = None;
        let weights = Tensor::build(device, DType::F32, &to, |backend, weights| {
            let bias = bias.map(Tensor::operand);
            let fill = |_: &dyn Backend, ids: &mut OperandMut<'_>| backend.route(routing, &logits.operand(), bias.as_ref(), ids, weights);
            ids = Some(Tensor::build(device, DType::U32, &to, fill)?);
            Ok(())
        })?;
        let ids = ids.ok_or_else(|| shape(op, "internal error: no experts were chosen"))?;
        let mut choice = ExpertChoice { ids, weights, experts, order: None };
        if !device.is_cpu() {
            let assignments = choice.ids.len();
            let rows = ExpertTiles::rows_for(assignments, experts);
            let count = ExpertTiles::count(assignments, experts, rows);
            let mut tiles = None;
            let order = Tensor::build(device, DType::U32, &[assignments], |backend, order| {
                let sort =
                    |_: &dyn Backend, tiles: &mut OperandMut<'_>| backend.sort_experts(&choice.ids.operand(), experts, rows, order, tiles);
                tiles = Some(Tensor::build(device, DType::U32, &[count, 3], sort)?);
                Ok(())
            })?;
            choice.order = tiles.map(|tiles| (order, tiles, rows));
        }
        Ok(choice)
    }
}

impl ExpertChoice {
    /// Returns the experts, `u32` of (tokens, used).
    pub fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// Returns the experts' weights, `f32` of (tokens, used).
    pub fn weights(&self) -> &Tensor {
        &self.weights
    }

    /// Returns each token's weighted sum of results of its experts, which are `f32` of (tokens · used, columns).
    pub fn combine(&self, x: &Tensor) -> Result<Tensor> {
        let op = "moe_combine";
        let [assignments, columns] = *x.shape() else {
            return Err(shape(op, format!("expected (tokens * experts per token, columns), got {:?}", x.shape())));
        };
        if assignments != self.ids.len() {
            return Err(shape(op, format!("expected {} rows (tokens * experts per token), got {assignments}", self.ids.len())));
        }
        self.weights.check_same_kind(op, "the results", x)?;
        let x = x.contiguous()?;
        Tensor::build(x.device(), DType::F32, &[self.ids.size(0), columns], |backend, out| {
            backend.combine_experts(&x.operand(), &self.weights.operand(), out)
        })
    }
}

impl Experts {
    /// Creates experts of plain weights, (experts, rows, columns).
    pub fn plain(weights: &Tensor) -> Result<Experts> {
        let [experts, rows, columns] = *weights.shape() else {
            return Err(shape("experts", format!("expected (experts, rows, columns), got {:?}", weights.shape())));
        };
        let parts = vec![Matrix::plain(weights.reshape(&[experts * rows, columns])?)?];
        Ok(Experts { parts, experts, rows, columns, bias: None })
    }

    /// Creates experts of quantized weights from GGUF blocks, expert by expert and row by row. On meta devices `blocks` is empty.
    pub fn quantized(quant: Quant, blocks: &[u8], [experts, rows, columns]: [usize; 3], device: &Device) -> Result<Experts> {
        let meta = matches!(device, Device::Meta(_));
        let matrix = |blocks: &[u8], rows: usize| match meta {
            true => Matrix::quantized_meta(quant, rows, columns, device),
            false => Matrix::quantized(quant, blocks, rows, columns, device),
        };
        let parts = if device.is_cpu() {
            let each = blocks.len() / experts.max(1);
            (0..experts).map(|expert| matrix(&blocks[expert * each..(expert + 1) * each], rows)).collect::<Result<_>>()?
        } else {
            vec![matrix(blocks, experts * rows)?]
        };
        Ok(Experts { parts, experts, rows, columns, bias: None })
    }

    /// Adds a bias, (experts, rows), in `f32`.
    pub fn with_bias(mut self, bias: &Tensor) -> Result<Experts> {
        let op = "experts";
        if bias.shape() != [self.experts, self.rows] {
            return Err(shape(op, format!("expected a bias of shape [{}, {}], got {:?}", self.experts, self.rows, bias.shape())));
        }
        self.check_device(op, "the bias", bias)?;
        self.bias = Some(bias.cast(DType::F32)?.contiguous()?);
        Ok(self)
    }

    fn check_device(&self, op: &'static str, what: &'static str, tensor: &Tensor) -> Result<()> {
        match self.parts.first().map(Matrix::device) {
            Some(device) if device != tensor.device() => Err(wrong_device(op, what, tensor.device().name(), device.name())),
            _ => Ok(()),
        }
    }

    /// Returns the number of experts.
    pub fn len(&self) -> usize {
        self.experts
    }

    /// Returns whether the number of experts is 0.
    pub fn is_empty(&self) -> bool {
        self.experts == 0
    }

    /// Returns the number of output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Matrix::bytes).sum()
    }

    /// Returns the product of each assignment with its expert's matrix, (tokens · used, rows) of type `to`.
    ///
    /// `x` is (tokens, columns), or (tokens · used, columns) if each assignment has a row of its own.
    pub fn forward(&self, x: &Tensor, choice: &ExpertChoice, to: DType, precision: Precision) -> Result<Tensor> {
        let op = "grouped_matmul";
        let (tokens, assignments) = (choice.ids.size(0), choice.ids.len());
        if self.experts != choice.experts {
            return Err(shape(op, format!("the tokens were routed to {} experts, but there are {}", choice.experts, self.experts)));
        }
        match *x.shape() {
            [rows, columns] if columns == self.columns && (rows == tokens || rows == assignments) => {}
            _ => {
                let expected = format!("[{tokens}, {columns}] or [{assignments}, {columns}]", columns = self.columns);
                return Err(shape(op, format!("expected an input of shape {expected}, got {:?}", x.shape())));
            }
        }
        check_float(op, "the input", x.dtype())?;
        check_float(op, "the result", to)?;
        self.check_device(op, "the input", x)?;
        choice.ids.check_same_device(op, "the input", x)?;
        let x = x.contiguous()?;
        let weights: Vec<_> = self.parts.iter().map(Matrix::weights).collect();
        let order = choice.order.as_ref().map(|(order, tiles, rows)| ExpertOrder {
            order: order.operand(),
            tiles: tiles.operand(),
            tile_rows: *rows,
        });
        let args = GroupedArgs {
            weights: &weights,
            experts: self.experts,
            rows: self.rows,
            ids: choice.ids.operand(),
            order,
            x: x.operand(),
            bias: self.bias.as_ref().map(Tensor::operand),
            precision,
        };
        Tensor::build(x.device(), to, &[assignments, self.rows], |backend, out| backend.grouped_linear(&args, out))
    }
}
