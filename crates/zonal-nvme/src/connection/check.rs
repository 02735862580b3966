//! Validation of a command's capsule and data pointer, before anything is executed.

use super::{CONNECT_DATA, Connection};
use crate::status::Status;
use crate::wire::{DataPointer, Sqe, fabrics, io};

impl Connection {
    /// Bytes of data from the host and to the host.
    pub(super) fn lengths(&self, sqe: &Sqe) -> Result<(u32, u32), Status> {
        if sqe.opcode == fabrics::OPCODE {
            return match (sqe.nsid.get() as u8, sqe.data.len.get()) {
                (fabrics::CONNECT, CONNECT_DATA) => Ok((CONNECT_DATA, 0)),
                (fabrics::CONNECT, _) => Err(Status::DATA_LENGTH_INVALID),
                _ => Ok((0, 0)),
            };
        }
        let queue = self.queue.as_ref().ok_or(Status::SEQUENCE_ERROR)?;
        if self.disconnect.is_some() {
            return Err(Status::ABORTED_QUEUE_DELETED);
        }
        // Fused operations are not supported.
        let fused = || if sqe.flags & 3 != 0 { Err(Status::INVALID_FIELD) } else { Ok(()) };
        if queue.qid() == 0 {
            fused()?;
            let from_host = queue.controller().admin_data(sqe);
            // The opcode gives the direction of the data (Base 3.1.3.4). Other commands have no
            // data, whatever their pointers say.
            let to_host = match sqe.opcode & 3 {
                2 if from_host == 0 => sqe.data.len.get().min(self.target.transfer_max()),
                _ => 0,
            };
            return Ok((from_host, to_host));
        }
        if sqe.opcode == io::FLUSH {
            fused()?;
            return Ok((0, 0));
        }
        // Namespace, opcode, fields: the first of several errors is reported, in the order used by
        // QEMU.
        let namespace = self.target.namespace(sqe.nsid.get())?;
        namespace.check_opcode(sqe.opcode)?;
        fused()?;
        let lengths = (namespace.data_from_host(sqe)?, namespace.data_to_host(sqe)?);
        match lengths.0.max(lengths.1) > self.target.transfer_max() {
            true => Err(Status::INVALID_FIELD),
            false => Ok(lengths),
        }
    }

    /// Base 4.3.2: data from the host is in the capsule or requested by the controller; data to the
    /// host is sent.
    pub(super) fn check_pointer(
        &self,
        sqe: &Sqe,
        from_host: u32,
        to_host: u32,
        in_capsule: u32,
    ) -> Result<(), Status> {
        // Over fabrics only SGLs are allowed.
        if sqe.flags >> 6 != 1 {
            return Err(Status::INVALID_FIELD);
        }
        let is_admin_read = from_host == 0 && !self.is_io();
        match DataPointer::parse(&sqe.data) {
            _ if from_host == 0 && to_host == 0 => Ok(()),
            Some(DataPointer::InCapsule { .. }) if from_host == 0 => Err(Status::SGL_TYPE_INVALID),
            Some(DataPointer::InCapsule { offset: 1.., .. }) => Err(Status::SGL_OFFSET_INVALID),
            Some(DataPointer::InCapsule { len, .. }) if len == in_capsule && len == from_host => Ok(()),
            Some(DataPointer::Transport { .. }) if in_capsule > 0 => Err(Status::SGL_TYPE_INVALID),
            Some(DataPointer::Transport { .. }) if is_admin_read => Ok(()),
            Some(DataPointer::Transport { len }) if len == from_host.max(to_host) => Ok(()),
            Some(_) => Err(Status::DATA_LENGTH_INVALID),
            None => Err(Status::SGL_TYPE_INVALID),
        }
    }
}
