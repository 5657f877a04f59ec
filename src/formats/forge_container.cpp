#include "formats/forge_container.h"

#include "forge_bytes.h"
#include "formats/forge_manifest.h"
#include "formats/forge_shard.h"
#include "formats/xxh3.h"

namespace forge {
namespace {

constexpr std::string_view file_magic = "FORGEMDL", trailer_magic = "FORGETRL";
constexpr std::size_t trailer_bytes = 64, entry_bytes = 48;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::string container_header() {
    ByteWriter out;
    out.raw(file_magic);
    out.number(static_cast<std::uint32_t>(kForgeVersion));
    out.pad_to(kPlaneAlignment);
    return out.take();
}

std::string container_tail(std::string_view manifest, std::span<const ContainedBlob> blobs, std::uint64_t end) {
    ByteWriter directory;
    for (const ContainedBlob& blob : blobs) {
        directory.raw(std::as_bytes(std::span(blob.digest.bytes)));
        directory.number(blob.offset);
        directory.number(blob.bytes);
    }
    const std::string entries = directory.take();
    ByteWriter out;
    out.raw(manifest);
    out.raw(entries);
    const std::uint64_t directory_at = end + manifest.size();
    out.number(end);
    out.number(static_cast<std::uint64_t>(manifest.size()));
    out.number(directory_at);
    out.number(static_cast<std::uint64_t>(blobs.size()));
    out.number(xxh3(bytes_of(manifest)));
    out.number(xxh3(bytes_of(entries)));
    out.number(directory_at + entries.size() + trailer_bytes);
    out.raw(trailer_magic);
    return out.take();
}

Container read_container(std::span<const std::byte> bytes, const std::string& source) {
    ByteReader in(bytes, source);
    if (in.left() < 12 || in.text(8, "the header") != file_magic) fail("{}: this is no .forge file: it should begin with {}", source, file_magic);
    if (const auto version = in.number<std::uint32_t>("the header"); version != kForgeVersion)
        fail(ErrorKind::unsupported, "{}: the file has version {}, and this version of Forge reads {}", source, version, kForgeVersion);
    if (bytes.size() < kPlaneAlignment + trailer_bytes) fail("{}: the file has {} bytes, too few for a model; it is truncated", source, bytes.size());
    const std::size_t trailer_at = bytes.size() - trailer_bytes;
    ByteReader trailer(bytes.subspan(trailer_at), source);
    const auto manifest_at = trailer.number<std::uint64_t>("the trailer"), manifest_bytes = trailer.number<std::uint64_t>("the trailer");
    const auto directory_at = trailer.number<std::uint64_t>("the trailer"), count = trailer.number<std::uint64_t>("the trailer");
    const auto manifest_hash = trailer.number<std::uint64_t>("the trailer"), directory_hash = trailer.number<std::uint64_t>("the trailer");
    const auto size = trailer.number<std::uint64_t>("the trailer");
    if (trailer.text(8, "the trailer") != trailer_magic) fail("{}: the file should end with {}; it is truncated or damaged", source, trailer_magic);
    if (size != bytes.size()) fail("{}: the file should have {} bytes, but it has {}; it is damaged", source, size, bytes.size());
    if (manifest_at < kPlaneAlignment || manifest_at > trailer_at || manifest_bytes > trailer_at - manifest_at || directory_at != manifest_at + manifest_bytes ||
        count != (trailer_at - directory_at) / entry_bytes || (trailer_at - directory_at) % entry_bytes != 0)
        fail("{}: the file's trailer contradicts itself; it is damaged", source);
    const auto manifest = bytes.subspan(static_cast<std::size_t>(manifest_at), static_cast<std::size_t>(manifest_bytes));
    const auto entries = bytes.subspan(static_cast<std::size_t>(directory_at), trailer_at - static_cast<std::size_t>(directory_at));
    if (xxh3(manifest) != manifest_hash) fail("{}: the XXH3 of the manifest is another than the trailer says; the file is damaged", source);
    if (xxh3(entries) != directory_hash) fail("{}: the XXH3 of the directory is another than the trailer says; the file is damaged", source);
    Container out;
    out.manifest = {reinterpret_cast<const char*>(manifest.data()), manifest.size()};
    out.manifest_offset = manifest_at;
    ByteReader directory(entries, source);
    for (std::uint64_t i = 0; i < count; ++i) {
        ContainedBlob blob;
        const auto digest = directory.raw(32, "the directory");
        std::memcpy(blob.digest.bytes.data(), digest.data(), 32);
        blob.offset = directory.number<std::uint64_t>("the directory");
        blob.bytes = directory.number<std::uint64_t>("the directory");
        if (blob.offset % kPlaneAlignment != 0 || blob.offset > manifest_at || blob.bytes > manifest_at - blob.offset)
            fail("{}: the blob {} is said to lie outside the file or not at a multiple of 16 KiB", source, blob.digest.hex());
        out.blobs.push_back(blob);
    }
    return out;
}

}  // namespace forge
