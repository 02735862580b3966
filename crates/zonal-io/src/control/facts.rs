//! Description of a device and a volume for other processes: sizes in bytes, names as in device
//! names.

use crate::device::DeviceInfo;
use crate::volume::{BudgetStatus, OptionKey, Volume};
use zonal_core::{Personality, SECTOR_BYTES, Sector, ZoneCondition, ZoneDescriptor, ZoneType};

/// Description of a device, for programs and people. Sizes are in bytes; a limit or maximum of 0
/// means none.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Name by which it was opened.
    pub name: String,
    /// Permanent identity of the device as a UUID, if it has one.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Size of the device.
    pub size: u64,
    /// Logical block size.
    pub blocksize: u64,
    /// Distance from one zone's start to the next.
    pub zone_size: u64,
    /// Writable part of a sequential zone.
    pub zone_capacity: u64,
    /// Number of zones.
    pub zones: u32,
    /// Number of conventional zones; they precede all others.
    pub zone_nr_conv: u32,
    /// Maximum number of open zones.
    pub zone_max_open: u32,
    /// Maximum number of active zones.
    pub zone_max_active: u32,
    /// Largest read or write.
    pub command_max: u64,
    /// Largest native zone append.
    pub append_max: u64,
    /// Largest write-zeroes command.
    pub write_zeroes_max: u64,
    /// Largest verify command.
    #[serde(default)]
    pub verify_max: u64,
    /// Largest discard of conventional sectors.
    #[serde(default)]
    pub discard_max: u64,
    /// True if acknowledged writes may be lost in a power failure until a flush.
    pub volatile_cache: bool,
    /// True if a single write can be made durable.
    pub fua: bool,
    /// True for a rotational drive.
    pub rotational: bool,
    /// True if queues preserve the order of their commands.
    pub preserves_write_order: bool,
    /// Standard that applies where they differ: `zns` or `zbc`.
    pub personality: String,
    /// Number of queues.
    pub queues: usize,
}

/// Descriptor of a zone, for programs. Addresses and sizes are bytes.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ZoneFacts {
    /// Index of the zone, from 0.
    pub zone: u32,
    /// `conventional` or `sequential`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the condition: see [`ZoneCondition::name`].
    pub condition: String,
    /// Address of the first byte.
    pub start: u64,
    /// Size.
    pub size: u64,
    /// Writable part.
    pub capacity: u64,
    /// Write pointer; `None` where the zone has no valid one.
    pub write_pointer: Option<u64>,
}

impl From<&ZoneDescriptor> for ZoneFacts {
    fn from(zone: &ZoneDescriptor) -> ZoneFacts {
        let kind = match zone.zone_type {
            ZoneType::Conventional => "conventional",
            ZoneType::SequentialWriteRequired => "sequential",
        };
        ZoneFacts {
            zone: zone.zone.0,
            kind: kind.to_owned(),
            condition: zone.condition.name().to_owned(),
            start: zone.start.bytes(),
            size: zone.size.bytes(),
            capacity: zone.capacity.bytes(),
            write_pointer: zone.write_pointer.map(Sector::bytes),
        }
    }
}

impl ZoneFacts {
    /// Condition of the zone, or `None` if this version does not have the name.
    pub fn zone_condition(&self) -> Option<ZoneCondition> {
        ZoneCondition::ALL.into_iter().find(|condition| condition.name() == self.condition)
    }
}

impl From<&DeviceInfo> for DeviceFacts {
    fn from(info: &DeviceInfo) -> DeviceFacts {
        let bytes = |sectors: u32| u64::from(sectors) * SECTOR_BYTES;
        let geometry = &info.geometry;
        DeviceFacts {
            name: info.name.clone(),
            uuid: info.identity.map(|identity| identity.to_string()),
            size: geometry.sectors().bytes(),
            blocksize: bytes(info.block_sectors),
            zone_size: geometry.zone_size().bytes(),
            zone_capacity: geometry.zone_capacity().bytes(),
            zones: geometry.zones(),
            zone_nr_conv: geometry.conventional_zones(),
            zone_max_open: info.open_max,
            zone_max_active: info.active_max,
            command_max: bytes(info.command_sectors_max),
            append_max: bytes(info.append_sectors_max),
            write_zeroes_max: bytes(info.write_zeroes_sectors_max),
            verify_max: bytes(info.verify_sectors_max),
            discard_max: bytes(info.discard_sectors_max),
            volatile_cache: info.volatile_cache,
            fua: info.fua,
            rotational: info.rotational,
            preserves_write_order: info.keeps_order,
            personality: match info.personality {
                Personality::Zns => "zns",
                Personality::Zbc => "zbc",
            }
            .to_owned(),
            queues: info.queues,
        }
    }
}

/// Option of an open volume.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct OptionFacts {
    /// Name.
    pub name: String,
    /// Value in force, as text.
    pub value: String,
    /// Origin of the value: the caller, a file of saved options, the control socket, or the
    /// default.
    pub set_by: String,
}

/// Description of an open volume.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct VolumeFacts {
    /// ID of the process that has it open.
    pub pid: u32,
    /// Write mode.
    pub mode: String,
    /// Reason for this mode.
    pub reason: String,
    /// Options in force, including the mode.
    #[serde(default)]
    pub options: Vec<OptionFacts>,
    /// Mode or window (as in `window=16`) that was requested and takes effect when nothing is in
    /// flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Memory used by plugs, in bytes.
    pub plug_bytes: usize,
    /// Holders of open and active slots and waiters for them, if the volume tracks these.
    #[serde(default)]
    pub budget: Option<BudgetStatus>,
    /// Underlying device.
    pub device: DeviceFacts,
}

impl VolumeFacts {
    /// Describes a volume of this process.
    pub fn of(volume: &Volume) -> VolumeFacts {
        let (mode, reason) = volume.mode();
        let options = volume.options();
        let facts_of = |key: OptionKey| OptionFacts {
            name: key.name().to_owned(),
            value: options.text(key),
            set_by: match key {
                OptionKey::Mode => reason,
                key => options.setters.of(key).name(),
            }
            .to_owned(),
        };
        VolumeFacts {
            pid: std::process::id(),
            mode: mode.name().to_owned(),
            reason: reason.to_owned(),
            options: OptionKey::ALL.map(facts_of).into(),
            pending: None,
            plug_bytes: volume.plug_bytes(),
            budget: volume.budget_status(),
            device: volume.info().into(),
        }
    }
}
