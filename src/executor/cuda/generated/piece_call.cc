#include "executor/cuda/generated/piece_call.h"

#include <algorithm>

#include "executor/cuda/generated/shape.h"

namespace narrowcast::executor::cuda::generated {

BlockShape piece_shape_of(const Program& program, const PieceProgram& pieces, uint64_t chunk_bytes,
                          const CommTraits& traits) {
  if (pieces.reduces) {
    const auto gathers = [](const RankChunks& chunks) {
      return std::ranges::any_of(chunks.recv, [](const RankChunks::Chunk& chunk) { return chunk.has_value(); });
    };
    return reduction_shape(program.dtype, program.codec, chunk_bytes,
                           most_ctas(traits.link, program.codec, traits.max_ctas, traits.shared_bytes),
                           traits.clusters && std::ranges::any_of(pieces.ranks, gathers), traits.shared_bytes);
  }
  // In an all-to-all every rank sends that many bytes to each other one, as here.
  return choose_block_shape({.operation = Operation::all_to_all,
                             .dtype = program.dtype,
                             .codec = program.codec,
                             .bytes = chunk_bytes,
                             .ranks = traits.ranks,
                             .link = traits.link,
                             .max_ctas = traits.max_ctas,
                             .shared_bytes = traits.shared_bytes},
                            program.codec);
}

void set_pieces(const PieceProgram& pieces, int rank, const PlanBuffers& buffers, const Rings& rings, BlockCall* call) {
  const RankChunks& chunks = pieces.ranks[static_cast<size_t>(rank)];
  call->values = static_cast<const char*>(buffers.input);  // find_pieces() takes all sources from there
  const auto address_of = [&](ChunkRef chunk) {
    const auto* const base =
        static_cast<const char*>(chunk.buffer() == ChunkRef::input ? buffers.input : buffers.output);
    return const_cast<char*>(base) + chunk.piece() * buffers.piece_bytes +
           std::min(chunk.chunk() * buffers.chunk_bytes, buffers.piece_bytes);
  };
  const auto bytes_of = [&](ChunkRef chunk) {
    return bytes_of_chunk(buffers.piece_bytes, buffers.chunk_bytes, chunk.chunk());
  };
  const auto piece = [&](const RankChunks::Chunk& chunk) -> Piece {
    if (!chunk) return {};
    const ChunkRef ref{*chunk};
    if (!pieces.reduces) return rings.piece(address_of(ref), bytes_of(ref));
    return {address_of(ref), bytes_of(ref), 0, 0};  // every ring of the call works on every piece
  };
  for (size_t peer = 0; peer < chunks.send.size(); ++peer) {
    call->send[peer] = piece(chunks.send[peer]);
    call->recv[peer] = piece(chunks.recv[peer]);
    call->gathers = call->gathers || (pieces.reduces && chunks.recv[peer].has_value());
  }
  call->assigns_blocks = !pieces.reduces && assigns_blocks(*call, rings.block_bytes());
  if (pieces.reduces) {
    call->own = piece(chunks.own);
    call->reduced = piece(chunks.reduced);
    call->sent_together = chunks.sent_together();
    call->forward = chunks.forward;
    call->turns = rings.turns(std::min(buffers.chunk_bytes, buffers.piece_bytes), pieces.passes_results_on());
  } else if (chunks.copied && chunks.copied_from) {
    const ChunkRef from{*chunks.copied_from}, to{*chunks.copied};
    if (address_of(from) != address_of(to)) call->local_copy = {address_of(from), address_of(to), bytes_of(to)};
  }
}

}  // namespace narrowcast::executor::cuda::generated
