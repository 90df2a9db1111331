// The keys of a machine file: one list for reading and for writing. A key's name ends with the unit in which its value
// is written; the structs hold bytes, seconds, flops and bytes per second.
#pragma once

#include "base/units.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

namespace unit {
inline constexpr double one = 1, giga = 1e9, tera = 1e12, micro = 1e-6, gbit = 1e9 / 8;
}

/// The range of a number.
enum class FieldRange : std::uint8_t {
  any,          // 0 or more
  part,         // 0 to 1
  positive,     // and required
  fraction,     // above 0, at most 1
  one_or_more,  //
};

// Fields: number, text, flag, choice; table and list of tables (inline ones are on one line), lists of values; formats.

template <class Fields>
void visit(Fields& fields, MatmulCurve& curve) {
  fields.number("efficiency", curve.efficiency, unit::one, FieldRange::fraction);
  fields.number("half_m", curve.half_m);
  fields.number("half_n", curve.half_n);
  fields.number("half_k", curve.half_k);
}

template <class Fields>
void visit(Fields& fields, MatmulPoint& point) {
  fields.number("m", point.m, FieldRange::one_or_more);
  fields.number("n", point.n, FieldRange::one_or_more);
  fields.number("k", point.k, FieldRange::one_or_more);
  fields.number("tflops", point.flops, unit::tera, FieldRange::positive);
}

template <class Fields>
void visit(Fields& fields, MatmulTile& tile) {
  fields.number("m", tile.m, FieldRange::one_or_more);
  fields.number("n", tile.n, FieldRange::one_or_more);
  fields.number("efficiency", tile.efficiency, unit::one, FieldRange::fraction);
}

template <class Fields>
void visit(Fields& fields, FormatRates& rates) {
  fields.number("peak_tflops", rates.peak_flops, unit::tera, FieldRange::positive);
  fields.number("fastest_tflops", rates.fastest_flops, unit::tera);
  fields.number("attention_efficiency", rates.attention_efficiency, unit::one, FieldRange::part);
  fields.inline_table("matmul", rates.matmul);
  fields.inline_list("points", rates.points);
}

template <class Fields>
void visit(Fields& fields, DeviceSpec& device) {
  fields.text("name", device.name);
  fields.bytes("memory_gib", device.memory_bytes, FieldRange::positive);
  fields.bytes("reserved_gib", device.reserved_bytes);
  fields.bytes("communicator_gib", device.communicator_bytes);
  fields.number("memory_gb_per_s", device.memory_bandwidth, unit::giga, FieldRange::positive);
  fields.number("memory_efficiency", device.memory_efficiency, unit::one, FieldRange::fraction);
  fields.number("vector_tflops", device.vector_flops, unit::tera);
  fields.number("operation_us", device.operation_seconds, unit::micro);
  fields.number("launch_us", device.launch_seconds, unit::micro, FieldRange::positive);
  fields.number("collective_launch_us", device.collective_launch_seconds, unit::micro, FieldRange::positive);
  fields.number("host_gb_per_s", device.host_bandwidth, unit::giga);
  fields.number("num_multiprocessors", device.num_multiprocessors);
  fields.inline_list("tiles", device.tiles);
  fields.formats("formats", device.formats);
  fields.format_names("unsupported_formats", device.unsupported_formats);
}

template <class Fields>
void visit(Fields& fields, CollectiveCurve& curve) {
  fields.choice("collective", curve.collective);
  fields.number("num_ranks", curve.num_ranks, FieldRange::one_or_more);
  fields.numbers("bytes", curve.bytes, unit::one);
  fields.numbers("us", curve.seconds, unit::micro);
}

template <class Fields>
void visit(Fields& fields, NodeLink& link) {
  fields.choice("kind", link.kind);
  fields.number("bandwidth_gb_per_s", link.bandwidth, unit::giga);
  fields.number("efficiency", link.efficiency, unit::one, FieldRange::fraction);
  fields.number("latency_us", link.latency_seconds, unit::micro);
  fields.number("start_us", link.start_seconds, unit::micro);
  fields.flag("reduces_in_switch", link.reduces_in_switch);
  fields.number("switch_efficiency", link.switch_efficiency, unit::one, FieldRange::fraction);
  fields.list("measured", link.measured);
}

template <class Fields>
void visit(Fields& fields, DiskSpec& disk) {
  fields.number("write_gb_per_s", disk.write_bandwidth, unit::giga);
  fields.number("read_gb_per_s", disk.read_bandwidth, unit::giga);
  fields.number("write_core_gb_per_s", disk.write_core_bandwidth, unit::giga);
  fields.number("sync_us", disk.sync_seconds, unit::micro);
}

template <class Fields>
void visit(Fields& fields, NodeSpec& node) {
  fields.text("name", node.name);
  fields.number("count", node.count);
  fields.number("num_devices", node.num_devices, FieldRange::one_or_more);
  fields.number("num_nics", node.num_nics);
  fields.number("nic_gbit_per_s", node.nic_bandwidth, unit::gbit);
  fields.number("price_per_device_hour", node.price_per_device_hour);
  fields.table("device", node.device);
  fields.table("link", node.link);
  fields.table("disk", node.disk);
}

template <class Fields>
void visit(Fields& fields, NetworkSpec& network) {
  fields.number("latency_us", network.latency_seconds, unit::micro);
  fields.number("efficiency", network.efficiency, unit::one, FieldRange::fraction);
  fields.number("oversubscription", network.oversubscription, unit::one, FieldRange::one_or_more);
  fields.number("nodes_per_leaf", network.nodes_per_leaf);
  fields.flag("rail_optimized", network.rail_optimized);
  fields.flag("reduces_in_switch", network.reduces_in_switch);
}

template <class Fields>
void visit(Fields& fields, MachineSpec& machine) {
  fields.text("name", machine.name);
  fields.text("source", machine.source);
  fields.flag("has_measured_rates", machine.has_measured_rates);
  fields.list("node", machine.nodes);
  fields.table("network", machine.network);
}

}  // namespace echelon
