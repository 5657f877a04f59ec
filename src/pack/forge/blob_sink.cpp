#include "blob_sink.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/paths.h"
#include "formats/forge_container.h"
#include "formats/forge_shard.h"
#include "output_file.h"
#include "store/blake3.h"
#include "store/store.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

class StoreSink : public BlobSink {
  public:
    StoreSink(const std::string& name, const std::string& key, bool overwrite)
        : store_(Store::open()), name_(*ModelName::parse(name)), key_("pack-" + key), use_(store_.use()), lock_(store_.lock_partial(key_, false)) {
        if (!lock_) fail("another process is packing the same model");
        if (!overwrite && store_.read_manifest(name_)) fail("{} is in the store already; remove it (forge rm), choose another name or give --force", name_.text());
        journal_.emplace(store_.partial(key_ + ".journal"), key_);
    }

    std::optional<Digest> finished(std::size_t number, std::uint64_t bytes) override {
        for (const PackJournal::Entry& entry : journal_->entries())
            if (entry.number == number && entry.bytes == bytes && store_.is_intact(entry.digest, bytes)) return entry.digest;
        return std::nullopt;
    }

    void begin(std::size_t number, std::uint64_t bytes) override {
        number_ = number;
        file_ = OutputFile(store_.partial(fmt::format("{}-{}", key_, number)));
        file_.resize(0);  // what a stopped run left
        file_.resize(bytes);
    }

    void write(std::uint64_t offset, std::span<const std::byte> bytes) override { file_.write(offset, bytes); }

    Done commit() override {
        const std::uint64_t bytes = file_.size();
        const Digest digest = blake3_file(file_.path());
        const bool there = store_.size_of(digest) == bytes;
        store_.adopt(file_.path(), digest, digest);
        journal_->add({number_, digest, bytes});
        file_ = OutputFile();
        return {digest, there};
    }

    Digest put(std::string_view bytes) override { return store_.put(bytes); }

    std::string preview(std::string_view manifest) override {
        const fs::path path = store_.partial(key_ + "@preview.json");
        write_file_atomically(path, manifest);
        return path.string();
    }

    std::string finish(std::string_view manifest) override {
        store_.write_manifest(name_, manifest);
        journal_->remove();
        for (const char* end : {"@preview.json", ".lock"}) {
            std::error_code ignored;
            fs::remove(store_.partial(key_ + end), ignored);
        }
        return store_.manifest_path(name_).string();
    }

  private:
    Store store_;
    ModelName name_;
    std::string key_;
    StoreLock use_, lock_;
    std::optional<PackJournal> journal_;
    OutputFile file_;
    std::size_t number_ = 0;
};

class FileSink : public BlobSink {
  public:
    FileSink(const std::string& path, const std::string& key, bool overwrite)
        : target_(path), file_(path + ".partial") {
        if (!overwrite && fs::exists(target_)) fail("{} exists already; remove it, choose another name or give --force", path);
        if (!file_.try_lock()) fail("another process is writing {}", file_.path().string());
        journal_.emplace(path + ".partial.journal", key);
        if (journal_->entries().empty()) file_.resize(0);
        const std::string header = container_header();
        file_.write(0, std::as_bytes(std::span(header)));
        end_ = header.size();
    }

    std::optional<Digest> finished(std::size_t number, std::uint64_t bytes) override {
        // Shards follow each other, so that the n-th is where it was if all before it are.
        if (number != blobs_.size() || number >= journal_->entries().size()) return std::nullopt;
        const PackJournal::Entry& entry = journal_->entries()[number];
        if (entry.number != number || entry.bytes != bytes || file_.size() < end_ + bytes || digest_at(end_, bytes) != entry.digest) return std::nullopt;
        place(entry.digest, bytes);
        return entry.digest;
    }

    void begin(std::size_t number, std::uint64_t bytes) override {
        number_ = number;
        bytes_ = bytes;
        file_.resize(end_);  // whatever follows is unfinished
        file_.resize(end_ + bytes);
    }

    void write(std::uint64_t offset, std::span<const std::byte> bytes) override { file_.write(end_ + offset, bytes); }

    Done commit() override {
        file_.flush();
        const Digest digest = digest_at(end_, bytes_);
        journal_->add({number_, digest, bytes_});
        place(digest, bytes_);
        return {digest, false};
    }

    Digest put(std::string_view bytes) override {
        const Digest digest = blake3(std::as_bytes(std::span(bytes)));
        for (const ContainedBlob& blob : blobs_)
            if (blob.digest == digest) return digest;
        file_.resize(end_);
        file_.write(end_, std::as_bytes(std::span(bytes)));
        place(digest, bytes.size());
        return digest;
    }

    std::string preview(std::string_view manifest) override {
        write_tail(manifest);
        return file_.path().string();
    }

    std::string finish(std::string_view manifest) override {
        write_tail(manifest);
        file_.flush();
        fs::rename(file_.path(), target_);
        journal_->remove();
        return target_.string();
    }

  private:
    Digest digest_at(std::uint64_t offset, std::uint64_t bytes) const {
        Blake3 hasher;
        std::vector<std::byte> buffer(std::size_t{1} << 20);
        for (std::uint64_t at = 0; at < bytes;) {
            const auto part = std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - at)));
            file_.read(offset + at, part);
            hasher.update(part);
            at += part.size();
        }
        return hasher.finish();
    }
    void place(const Digest& digest, std::uint64_t bytes) {
        blobs_.push_back({digest, end_, bytes});
        end_ = (end_ + bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
    }
    void write_tail(std::string_view manifest) {
        const std::string tail = container_tail(manifest, blobs_, end_);
        file_.resize(end_);
        file_.write(end_, std::as_bytes(std::span(tail)));
    }

    fs::path target_;
    OutputFile file_;
    std::optional<PackJournal> journal_;
    std::vector<ContainedBlob> blobs_;
    std::uint64_t end_ = 0, bytes_ = 0;
    std::size_t number_ = 0;
};

}  // namespace

std::unique_ptr<BlobSink> store_sink(const std::string& name, const std::string& key, bool overwrite) {
    return std::make_unique<StoreSink>(name, key, overwrite);
}
std::unique_ptr<BlobSink> file_sink(const std::string& path, const std::string& key, bool overwrite) {
    return std::make_unique<FileSink>(path, key, overwrite);
}

}  // namespace forge
