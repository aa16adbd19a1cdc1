#include "store/build/builder.h"

#include <algorithm>
#include <cstring>

#include "nlohmann/json.hpp"
#include "status/error.h"
#include "store/file/header.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

// Raw bytes of a piece: rows that are encoded while those before are written.
constexpr uint64_t piece_bytes_per_thread = 4u << 20, least_piece_bytes = 8u << 20, most_piece_bytes = 128u << 20;
constexpr uint64_t task_bytes = 64u << 10;  // raw bytes that a thread encodes at a time
constexpr uint64_t segments_at_a_time = 4;  // that a thread writes
// That write pieces which a device encodes. More of them read memory in bursts, which delay its copies.
constexpr size_t most_writing_threads = 12;
constexpr uint64_t frames_at_a_time = 64;
constexpr uint64_t most_default_rows = 4096;  // of the first block, to which the codec is fitted without a sample

const char* layout_name(uint8_t layout) {
  return layout == file::stride_layout ? "stride" : layout == file::packed_layout ? "packed" : "blocks";
}

}  // namespace

uint64_t Builder::row_bytes() const {
  uint64_t bytes = ncast_dtype_bytes(options_.dtype);
  for (const uint64_t extent : options_.row_shape) bytes *= extent;
  return bytes;
}

ncast_status Builder::failed(ncast_status status) {
  if (status != NCAST_OK) failed_ = true;
  return status;
}

ncast_status Builder::begin(const RowBlock& sample) {
  if (ncast_status status = plan_table(options_, sample, &plan_)) return status;
  std::vector<uint8_t> model;
  if (plan_.model) plan_.model->serialise(model);
  if (ncast_status status = failed(writer_.begin(plan_.header, model, options_.metadata))) return status;
  begun_ = true;
  size_t threads = threads::count_of(options_.threads);
  if (is_encoded_elsewhere()) threads = std::min(threads, most_writing_threads);
  team_ = std::make_unique<threads::Team>(threads);
  if (is_encoded_elsewhere()) {
    const bool packed = plan_.header.layout == file::packed_layout;
    if (ncast_status status = failed(encoder_->begin(
            *plan_.model, {packed ? 0 : plan_.header.stride, plan_.header.entry_stride, plan_.header.unit})))
      return status;
  }
  const uint64_t zero = 0;
  if (plan_.header.layout == file::packed_layout) return failed(writer_.append_offsets(&zero, sizeof(uint32_t)));
  if (plan_.header.layout == file::blocks_layout) return failed(writer_.append_offsets(&zero, sizeof zero));
  return NCAST_OK;
}

ncast_status Builder::sample(const RowBlock& rows) {
  if (begun_)
    return fail(NCAST_INVALID_ARGUMENT, "%s: rows were added before the sample, or sampled twice", builder_function);
  if (rows.count == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: the sample has no rows", builder_function);
  if (encoder_ == nullptr || !encoder_->holds(rows)) return begin(rows);
  std::vector<uint8_t> copied(rows.count * row_bytes());
  if (ncast_status status = encoder_->copy_to_host(rows, row_bytes(), copied.data())) return status;
  return begin({copied.data(), row_bytes(), rows.count});
}

ncast_status Builder::add(const RowBlock& rows) {
  if (failed_ || finished_)
    return fail(NCAST_INVALID_ARGUMENT, "%s: it is finished, or a call has failed before", builder_function);
  if (rows.count == 0) return NCAST_OK;
  if (options_.capacity != 0 && rows.count > options_.capacity - std::min(options_.capacity, rows_)) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: the capacity is %llu, but there are more rows", builder_function,
                static_cast<unsigned long long>(options_.capacity));
  }
  if (rows.count > file::max_rows - rows_)
    return fail(NCAST_UNSUPPORTED, "%s: a table has at most 2^40 rows", builder_function);
  if (!begun_) {
    const RowBlock first{rows.rows, rows.stride, std::min(rows.count, most_default_rows)};
    if (ncast_status status = sample(first)) return status;
  }
  return failed(add_parts(rows));
}

// Adds rows on the host, or rows that the encoder takes as they are.
ncast_status Builder::add_part(const RowBlock& rows) {
  if (plan_.header.layout == file::blocks_layout) return add_values(rows, false);
  ncast_status status;
  if (is_encoded_elsewhere())
    status = encode_elsewhere(rows);
  else
    status = plan_.header.layout == file::packed_layout ? add_payloads(rows) : add_slots(rows);
  if (status == NCAST_OK) rows_ += rows.count;
  return status;
}

uint64_t Builder::piece_rows() const {
  if (is_encoded_elsewhere()) return encoder_->piece_rows();
  const uint64_t bytes =
      std::clamp(threads::count_of(options_.threads) * piece_bytes_per_thread, least_piece_bytes, most_piece_bytes);
  return std::max<uint64_t>(1, bytes / row_bytes());
}

template <typename Begin>
ncast_status Builder::encode_and_write(uint64_t tasks, Begin begin) {
  const file::DataRun& run = waiting_piece_.run;
  // Offsets and entries first: they are one task, the longest.
  const uint64_t appended = waiting_piece_.ends.empty() && waiting_piece_.overflows.empty() ? 0 : 1;
  const uint64_t written = appended + (run.segments + segments_at_a_time - 1) / segments_at_a_time;
  threads::FirstError error;
  team_->for_each_with(written + tasks, [&] {
    return [&, encode = begin()](uint64_t task) mutable {
      if (task >= written) return encode(task - written);
      if (task < appended) return error.note(task, append_waiting());
      const uint64_t first = (task - appended) * segments_at_a_time;
      error.note(task, writer_.write_data(run, first, std::min(segments_at_a_time, run.segments - first)));
    };
  });
  if (error.status() != NCAST_OK) return fail(error.status(), "%s", error.message().c_str());
  waiting_piece_.run = {};
  waiting_piece_.ends = {};
  waiting_piece_.overflows.clear();
  return NCAST_OK;
}

// Appends the offsets and the entries of the piece.
ncast_status Builder::append_waiting() {
  const std::span<const uint32_t> ends = waiting_piece_.ends;
  if (ncast_status status = writer_.append_offsets(ends.data(), ends.size_bytes())) return status;
  for (const Overflow& overflow : waiting_piece_.overflows)
    if (ncast_status status = writer_.append_entries(overflow.rows, overflow.entries)) return status;
  return NCAST_OK;
}

ncast_status Builder::write_waiting_piece() {
  return encode_and_write(0, [] { return [](uint64_t) {}; });
}

// `bytes` bytes of encoded_ are complete.
void Builder::end_piece(uint64_t bytes) {
  encoded_.run = writer_.take_data(encoded_.bytes.get() + file::segment_bytes, bytes);
  std::swap(encoded_, waiting_piece_);
}

ncast_status Builder::add_slots(const RowBlock& rows) {
  const uint64_t stride = plan_.header.stride, bytes = row_bytes(), bound = plan_.model->bound();
  const RowModel& model = *plan_.model;
  const bool uncoded = plan_.header.uncoded != 0;
  const uint64_t task_rows = std::max<uint64_t>(1, task_bytes / bytes);
  const uint64_t tasks = (rows.count + task_rows - 1) / task_rows;
  std::vector<Overflow> overflows(tasks);
  if (!encoded_.bytes)
    encoded_.bytes = std::make_unique_for_overwrite<uint8_t[]>(file::segment_bytes + piece_rows() * stride);
  uint8_t* const slots = encoded_.bytes.get() + file::segment_bytes;
  const auto encode = [&](uint64_t task, std::vector<uint8_t>& last) {
    const uint64_t end = std::min(rows.count, (task + 1) * task_rows);
    for (uint64_t i = task * task_rows; i < end; ++i) {
      const uint8_t* const row = rows.rows + i * rows.stride;
      uint8_t* const slot = slots + i * stride;
      if (uncoded) {
        std::memcpy(slot, row, bytes);
        continue;
      }
      // Up to bound() bytes are written: over the slots behind, which are written later, but not over other tasks'.
      uint8_t* const payload = i * stride + bound <= end * stride ? slot : last.data();
      size_t length = model.encode(row, payload);
      if (length > stride) {
        overflows[task].add(rows_ + i, payload, length, plan_.header.entry_stride);
        length = 0;
      }
      if (payload != slot) std::memcpy(slot, payload, length);
      std::memset(slot + length, 0, stride - length);
    }
  };
  const ncast_status written = encode_and_write(tasks, [&] {
    return [&, last = std::vector<uint8_t>(uncoded ? 0 : bound)](uint64_t task) mutable { encode(task, last); };
  });
  if (written != NCAST_OK) return written;
  for (Overflow& overflow : overflows) {
    overflow.entries = overflow.own_entries;
    if (ncast_status status = redirect(std::move(overflow), rows_)) return status;
  }
  end_piece(rows.count * stride);
  return NCAST_OK;
}

ncast_status Builder::add_payloads(const RowBlock& rows) {
  const uint64_t unit = plan_.header.unit;
  const RowModel& model = *plan_.model;
  const uint64_t task_rows = std::max<uint64_t>(1, task_bytes / row_bytes());
  const uint64_t tasks = (rows.count + task_rows - 1) / task_rows;
  const uint64_t longest = file::aligned(model.bound(), unit);
  if (!encoded_.bytes)
    encoded_.bytes = std::make_unique_for_overwrite<uint8_t[]>(file::segment_bytes + piece_rows() * longest);
  joiner_.begin_piece(encoded_.bytes.get() + file::segment_bytes, tasks, task_rows * longest);
  std::vector<uint32_t>& ends = encoded_.own_ends;
  ends.resize(rows.count);
  const auto end_of = [&](uint64_t task) { return std::min(rows.count, (task + 1) * task_rows); };
  const auto encode = [&](uint64_t task, uint8_t* payloads) {
    uint64_t at = 0;
    for (uint64_t i = task * task_rows; i < end_of(task); ++i) {
      const uint64_t end = at + model.encode(rows.rows + i * rows.stride, payloads + at);
      at = file::aligned(end, unit);
      std::memset(payloads + end, 0, at - end);
      ends[i] = static_cast<uint32_t>(at / unit);
    }
    return at;
  };
  const auto placed = [&](uint64_t task, uint64_t begin) {
    // If they exceed 32 bits, end_payloads() fails.
    const auto before = static_cast<uint32_t>(units_ + begin / unit);
    for (uint64_t i = task * task_rows; i < end_of(task); ++i) ends[i] += before;
  };
  const ncast_status written = encode_and_write(tasks, [&] {
    return [&, worker = PayloadJoiner::Worker(joiner_, placed)](uint64_t task) mutable {
      worker.add(task, encode(task, worker.memory()));
    };
  });
  if (written != NCAST_OK) return written;
  if (ncast_status status = end_payloads(joiner_.bytes() / unit, ends)) return status;
  end_piece(joiner_.bytes());
  return NCAST_OK;
}

void Builder::Overflow::add(uint64_t row, const uint8_t* payload, uint64_t bytes, uint64_t entry_stride) {
  rows.push_back(row);
  own_entries.resize(rows.size() * entry_stride);
  std::memcpy(own_entries.data() + (rows.size() - 1) * entry_stride, payload, bytes);
}

// Stores words that refer to the entries in the slots of encoded_, whose first row is `first`. The entries are used
// until it is written.
ncast_status Builder::redirect(Overflow overflow, uint64_t first) {
  if (overflow.rows.empty()) return NCAST_OK;
  uint64_t entry = 0;
  if (ncast_status status = writer_.number_entries(overflow.rows.size(), &entry)) return status;
  uint8_t* const slots = encoded_.bytes.get() + file::segment_bytes;
  for (const uint64_t row : overflow.rows) {
    const uint32_t word = redirect_to(entry++);
    std::memcpy(slots + (row - first) * plan_.header.stride, &word, sizeof word);
  }
  encoded_.overflows.push_back(std::move(overflow));
  return NCAST_OK;
}

// The payloads of encoded_ have so many units. ends: of the payloads, in units of the table; they are used until the
// piece is written.
ncast_status Builder::end_payloads(uint64_t units, std::span<const uint32_t> ends) {
  if (units_ + units > UINT32_MAX) {
    return fail(NCAST_UNSUPPORTED,
                "%s: the payloads exceed 2^32 units of %llu bytes: state the number of rows before they are added",
                builder_function, static_cast<unsigned long long>(plan_.header.unit));
  }
  units_ += units;
  encoded_.ends = ends;
  return NCAST_OK;
}

// Encodes the values that wait and those of the rows, as far as they fill frames; all of them if they are the last.
ncast_status Builder::add_values(const RowBlock& rows, bool last) {
  const uint64_t bytes = row_bytes(), value_bytes = ncast_dtype_bytes(options_.dtype);
  const uint64_t frame_bytes = plan_.header.stride * value_bytes;
  const auto encode = [&](uint64_t count) -> ncast_status {
    std::vector<const void*> values(count);
    std::vector<uint64_t> elems(count);
    const std::vector<ncast_dtype> dtypes(count, options_.dtype);
    const size_t bound = ncast_bound(options_.dtype, plan_.codec, plan_.header.stride);
    std::vector<uint8_t> buffer(count * bound);
    std::vector<void*> frames(count);
    const std::vector<size_t> capacities(count, bound);
    std::vector<size_t> lengths(count);
    for (uint64_t i = 0; i < count; ++i) {
      values[i] = waiting_.data() + i * frame_bytes;
      elems[i] = std::min<uint64_t>(frame_bytes, waiting_.size() - i * frame_bytes) / value_bytes;
      frames[i] = buffer.data() + i * bound;
    }
    if (ncast_status status = ncast_encode_batch(count, values.data(), dtypes.data(), elems.data(), plan_.codec, 0,
                                                 frames.data(), capacities.data(), lengths.data(), options_.threads))
      return status;
    for (uint64_t i = 0; i < count; ++i) {
      if (ncast_status status = writer_.append_data(static_cast<const uint8_t*>(frames[i]), lengths[i])) return status;
      frames_end_ += lengths[i];
      if (ncast_status status = writer_.append_offsets(&frames_end_, sizeof frames_end_)) return status;
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(
                                                            std::min<uint64_t>(count * frame_bytes, waiting_.size())));
    return NCAST_OK;
  };
  const uint64_t total = rows.count * bytes;
  for (uint64_t at = 0; at < total;) {
    // A part of the rows, so that a block of any size takes little memory.
    const uint64_t row = at / bytes, in_row = at % bytes;
    uint64_t part = std::min(bytes - in_row, frames_at_a_time * frame_bytes);
    if (rows.stride == bytes) part = std::min(total - at, frames_at_a_time * frame_bytes);
    const uint8_t* const from = rows.rows + row * rows.stride + in_row;
    waiting_.insert(waiting_.end(), from, from + part);
    at += part;
    if (waiting_.size() >= frames_at_a_time * frame_bytes) {
      if (ncast_status status = encode(waiting_.size() / frame_bytes)) return status;
    }
  }
  rows_ += rows.count;
  return last && !waiting_.empty() ? encode((waiting_.size() + frame_bytes - 1) / frame_bytes) : NCAST_OK;
}

ncast_status Builder::finish(std::string* report) {
  if (failed_ || finished_)
    return fail(NCAST_INVALID_ARGUMENT, "%s: it is finished, or a call has failed before", builder_function);
  if (!begun_) {
    // A table without rows: any row will do to choose a codec.
    const std::vector<uint8_t> zeros(row_bytes());
    if (ncast_status status = begin({zeros.data(), zeros.size(), 1})) return status;
  }
  if (plan_.header.layout == file::blocks_layout) {
    if (ncast_status status = failed(add_values({nullptr, row_bytes(), 0}, true))) return status;
  }
  if (ncast_status status = failed(write_waiting_piece())) return status;
  if (ncast_status status = failed(end_started_piece())) return status;
  if (ncast_status status = failed(write_waiting_piece())) return status;
  const uint64_t data_bytes = writer_.data_bytes();
  if (ncast_status status = failed(writer_.finish(rows_))) return status;
  finished_ = true;
  const file::Header& header = writer_.header();
  nlohmann::ordered_json json;
  json["codec"] = plan_.codec_text;
  json["layout"] = layout_name(header.layout);
  json["rows"] = rows_;
  json["raw_bytes"] = rows_ * row_bytes();
  json["file_bytes"] = writer_.file_bytes();
  json["stored_bytes"] = data_bytes + header.sections[file::offsets].bytes + header.sections[file::entries].bytes;
  json["stride"] = header.layout == file::stride_layout ? header.stride : 0;
  json["overflow_rows"] = header.entries;
  auto& fit = json["fit"];
  fit = {{"rows", rows_}, {"layout", json["layout"]}, {"layout_reason", plan_.layout_reason}};
  fit.update(nlohmann::ordered_json::parse(plan_.fit));
  *report = json.dump();
  return NCAST_OK;
}

}  // namespace narrowcast::store
