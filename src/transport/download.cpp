// Ranges are fetched by several threads into files of their own and appended in order as they arrive, so that the
// partial file is a right beginning at any moment, its digest is computed on the way, and nothing that arrived is
// lost with the process.
#include "transport/download.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"

namespace forge {
namespace {

using Locate = std::function<Location(HttpConnection&)>;
// Thrown by a worker to itself: the server answers a range with the whole file.
struct NoRanges {};

// "bytes FIRST-LAST/TOTAL"
struct ContentRange {
    std::uint64_t first = 0, last = 0, total = 0;
};

std::optional<ContentRange> parse_content_range(std::string_view text) {
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    ContentRange range;
    const auto number = [&](std::uint64_t& value, char after) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc()) return false;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        if (after == 0) return text.empty();
        if (!text.starts_with(after)) return false;
        text.remove_prefix(1);
        return true;
    };
    if (!number(range.first, '-') || !number(range.last, '/') || !number(range.total, 0)) return std::nullopt;
    return range;
}

class Transfer {
  public:
    Transfer(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options)
        : file_(file), what_(what), locate_(locate), options_(options), folder_(file.ranges()), appended_(file.have()),
          ranges_(folder_.plan(file.have(), file.size(), std::max<std::uint64_t>(1, options.range))) {
        stop_options_ = options_.http;
        stop_options_.cancelled = [this] { return stopping_.load() || options_.http.cancelled(); };
    }

    // Bytes that are on disk already.
    std::uint64_t found() const {
        std::uint64_t bytes = file_.have();
        for (const FileRange& range : ranges_) bytes += range.have;
        if (!ranges_.empty()) bytes -= file_.have() - ranges_.front().first;  // in both files
        return bytes;
    }

    // Fetches ranges until the file is complete; false: the server knows none.
    bool run() {
        folder_.create();
        const auto open = std::count_if(ranges_.begin(), ranges_.end(), [](const FileRange& range) { return !range.complete(); });
        const auto threads = std::min<std::int64_t>(std::max(1, options_.connections), open);
        std::vector<std::thread> workers;
        workers.reserve(static_cast<std::size_t>(threads));
        struct Join {
            Transfer& transfer;
            std::vector<std::thread>& workers;
            ~Join() {
                transfer.stop();
                for (std::thread& worker : workers) worker.join();
            }
        };
        {
            Join join{*this, workers};
            for (int i = 0; i < threads; ++i) workers.emplace_back([this] { work(); });
            append_in_order();
        }
        append_what_is_left();
        if (error_) std::rethrow_exception(error_);
        if (no_ranges_) return false;
        if (file_.have() < file_.size()) throw Interrupted();
        return true;
    }

    // One connection from the file's start on, where ranges are not served; what is there already is skipped.
    void run_whole() {
        HttpConnection connection(options_.http);
        const Location location = locate_(connection);
        std::uint64_t position = 0;
        HttpRequest request;
        request.url = location.url;
        request.authorization = location.authorization;
        const HttpAnswer answer = connection.send(request, [&](const HttpAnswer&, std::span<const std::byte> bytes) {
            const std::uint64_t skip = std::min<std::uint64_t>(bytes.size(), file_.have() > position ? file_.have() - position : 0);
            position += bytes.size();
            const auto fresh = bytes.subspan(static_cast<std::size_t>(skip));
            if (fresh.size() > file_.size() - file_.have()) fail(ErrorKind::io, "{}: more than the expected {} bytes arrive", what_, file_.size());
            file_.append(fresh);
            options_.received(fresh.size());
            return true;
        });
        check_status(answer);
        if (file_.have() < file_.size()) throw NetworkError(fmt::format("{}: {} of {} bytes arrived", what_, file_.have(), file_.size()));
    }

  private:
    void stop() {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }

    // Until the file is complete or the transfer ends. Where nothing has arrived, what the file held is hashed.
    void append_in_order() {
        while (front_ < ranges_.size()) {
            if (append_front()) continue;
            if (options_.http.cancelled()) return;
            {
                std::lock_guard lock(mutex_);
                if (error_ || no_ranges_) return;
            }
            if (file_.hash_more()) continue;
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return error_ || no_ranges_ || arrived_at_front() > 0; });
        }
    }

    std::uint64_t arrived_at_front() const { return ranges_[front_].first + ranges_[front_].have - appended_; }

    // Appends what has arrived of the range at the front, a megabyte at most; false: nothing has.
    bool append_front() {
        const FileRange range = ranges_at(front_);
        const std::uint64_t ready = range.first + range.have - file_.have();
        if (ready > 0) {
            if (!front_file_) front_file_.emplace(folder_.file(range));
            buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(ready, std::uint64_t{1} << 20)));
            front_file_->read(file_.have() - range.first, buffer_);
            file_.append(buffer_);
        }
        const bool done = file_.have() == range.end;
        if (done) {
            front_file_.reset();
            folder_.remove(range);
        }
        if (ready > 0 || done) {
            std::lock_guard lock(mutex_);
            appended_ = file_.have();
            front_ += done ? 1 : 0;
        }
        if (done) changed_.notify_all();
        return ready > 0 || done;
    }

    FileRange ranges_at(std::size_t index) {
        std::lock_guard lock(mutex_);
        return ranges_[index];
    }

    // After a stop: what had arrived at the front. An error here would hide the one that stopped the transfer.
    void append_what_is_left() {
        try {
            while (front_ < ranges_.size() && append_front()) {}
        } catch (...) {
            if (!error_) throw;
        }
    }

    void work() {
        try {
            HttpConnection connection(stop_options_);
            for (;;) {
                std::size_t mine;
                {
                    std::unique_lock lock(mutex_);
                    // The window bounds what lies on disk twice when one range is slow.
                    const std::uint64_t window = options_.range * static_cast<std::uint64_t>(std::max(1, options_.connections));
                    while (next_ < ranges_.size() && ranges_[next_].complete()) ++next_;
                    changed_.wait(lock, [&] { return stopping_ || next_ >= ranges_.size() || ranges_[next_].first < appended_ + window; });
                    if (stopping_ || next_ >= ranges_.size()) return;
                    mine = next_++;
                }
                fetch_range(connection, mine);
            }
        } catch (const NoRanges&) {
            std::lock_guard lock(mutex_);
            no_ranges_ = true;
            stopping_ = true;
        } catch (...) {
            std::lock_guard lock(mutex_);
            if (!error_ && !stopping_) error_ = std::current_exception();
            stopping_ = true;
        }
        changed_.notify_all();
    }

    void fetch_range(HttpConnection& connection, std::size_t index) {
        FileRange range = ranges_at(index);
        RangeFile out(folder_.file(range));
        int attempt = 1, refreshed = 0;
        while (!range.complete()) {
            const std::uint64_t before = range.have;
            const Location location = current_location(connection);
            try {
                const int status = request_range(connection, location, index, range, out);
                if (status == 401 || status == 403 || status == 410) {
                    if (++refreshed > 2) fail(ErrorKind::io, "{}: {} refuses with status {}", what_, shown_url(location.url), status);
                    forget_location(location);
                    continue;
                }
                // Fewer bytes than announced are a dropped connection.
                if (!range.complete()) throw NetworkError(fmt::format("{}: the connection ended early", shown_url(location.url)));
            } catch (const NetworkError& error) {
                if (range.have > before) attempt = 1;
                if (attempt >= options_.http.tries) throw NetworkError(fmt::format("{}; what arrived of {} is kept, and the same command goes on from there", error.what(), what_));
                log_debug("{}: {}; going on from byte {}", what_, error.what(), range.first + range.have);
                pause(stop_options_, pause_before(options_.http, attempt++, error.wait));
                if (attempt > 2) forget_location(location);
            }
        }
    }

    // Writes what arrives to `out` and counts it in `range` and ranges_[index]; the status of an answer without it.
    int request_range(HttpConnection& connection, const Location& location, std::size_t index, FileRange& range, RangeFile& out) {
        HttpRequest request;
        request.url = location.url;
        request.authorization = location.authorization;
        const std::uint64_t from = range.first + range.have, end = range.end;
        request.headers = {{"Range", fmt::format("bytes={}-{}", from, end - 1)}};
        bool checked = false;
        const HttpAnswer answer = connection.send(request, [&](const HttpAnswer& head, std::span<const std::byte> piece) {
            if (!checked) check_head(head, from, end);
            checked = true;
            if (piece.size() > end - range.first - range.have) fail(ErrorKind::io, "{}: {} sends more than was asked for", what_, shown_url(location.url));
            out.write(range.have, piece);
            range.have += piece.size();
            options_.received(piece.size());
            bool front;
            {
                std::lock_guard lock(mutex_);
                ranges_[index].have = range.have;
                front = index == front_;
            }
            if (front) changed_.notify_all();
            return true;
        });
        throw_if_transient(answer);
        if (answer.status == 401 || answer.status == 403 || answer.status == 410) return answer.status;
        check_status(answer);
        if (!checked) check_head(answer, from, end);  // an empty answer
        return answer.status;
    }

    void check_status(const HttpAnswer& answer) const {
        if (answer.status >= 200 && answer.status < 300) return;
        throw_if_transient(answer);
        if (answer.status == 416) fail(ErrorKind::io, "{}: {} has fewer than the expected {} bytes", what_, shown_url(answer.url), file_.size());
        const std::string why = explanation(answer);
        fail(answer.status == 404 ? ErrorKind::not_found : ErrorKind::io, "{}: {} answers with status {}{}{}", what_, shown_url(answer.url), answer.status,
             why.empty() ? "" : ": ", why);
    }

    void check_head(const HttpAnswer& head, std::uint64_t from, std::uint64_t end) {
        if (head.status == 200) {
            if (from == 0 && end == file_.size()) {
                check_total(head.header("content-length"));
                return;
            }
            throw NoRanges();
        }
        if (head.status != 206) fail(ErrorKind::io, "{}: {} answers a range with status {}", what_, shown_url(head.url), head.status);
        const auto range = parse_content_range(head.header("content-range"));
        if (!range || range->first != from || range->last + 1 > end || range->last < range->first)
            fail(ErrorKind::io, "{}: bytes {}-{} were asked for, and {} answers with \"{}\"", what_, from, end - 1, shown_url(head.url),
                 head.header("content-range").substr(0, 100));
        if (range->total != file_.size())
            fail(ErrorKind::io, "{}: {} bytes are expected, and {} has {}", what_, file_.size(), shown_url(head.url), range->total);
        check_etag(head);
    }

    void check_total(const std::string& length) const {
        if (!length.empty() && length != fmt::format("{}", file_.size()))
            fail(ErrorKind::io, "{}: {} bytes are expected, and the server announces {}", what_, file_.size(), length.substr(0, 30));
    }

    // All ranges must be of one version; the digest would find it too, after everything had arrived.
    void check_etag(const HttpAnswer& head) {
        const std::string etag = head.header("etag");
        if (etag.empty() || etag.starts_with("W/")) return;
        std::lock_guard lock(mutex_);
        if (etag_.empty()) etag_ = etag;
        if (etag_ != etag) fail(ErrorKind::io, "{} changed on the server while it was downloaded (its ETag was {} and is {}); run the command again", what_, etag_.substr(0, 100), etag.substr(0, 100));
    }

    Location current_location(HttpConnection& connection) {
        std::lock_guard lock(location_mutex_);  // others wait for the one that asks
        if (!location_) location_ = locate_(connection);
        return *location_;
    }

    void forget_location(const Location& stale) {
        std::lock_guard lock(location_mutex_);
        if (location_ && location_->url == stale.url && location_->authorization == stale.authorization) location_.reset();
    }

    PartialDownload& file_;
    const std::string& what_;
    const Locate& locate_;
    const DownloadOptions& options_;
    HttpOptions stop_options_;
    const RangeFolder folder_;
    std::optional<RangeFile> front_file_;  // of ranges_[front_]
    std::vector<std::byte> buffer_;

    std::mutex mutex_;  // guards all below
    std::condition_variable changed_;
    std::uint64_t appended_;          // file_.have(), for the workers
    std::vector<FileRange> ranges_;   // in order; those before front_ are in the file, those from next_ on nobody has taken
    std::size_t front_ = 0, next_ = 0;
    std::exception_ptr error_;
    bool no_ranges_ = false;
    std::atomic<bool> stopping_{false};
    std::string etag_;

    std::mutex location_mutex_;
    std::optional<Location> location_;
};

void transfer(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options, bool again) {
    {
        Transfer ranges(file, what, locate, options);
        if (!again) options.found(ranges.found());
        if (file.have() == file.size() || ranges.run()) return;
    }
    log_debug("{}: the server serves no ranges; going on over one connection", what);
    for (int attempt = 1;; ++attempt) {
        const std::uint64_t before = file.have();
        try {
            Transfer(file, what, locate, options).run_whole();
            return;
        } catch (const NetworkError& error) {
            if (file.have() > before) attempt = 1;
            if (attempt >= options.http.tries) throw;
            pause(options.http, pause_before(options.http, attempt, error.wait));
        }
    }
}

}  // namespace

void download(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options) {
    transfer(file, what, locate, options, false);
    if (file.finish(options.http.cancelled)) return;
    log_warn("{}: the bytes that arrived are not those of {}; downloading them once more", what, file.digest().text());
    transfer(file, what, locate, options, true);
    if (!file.finish(options.http.cancelled))
        fail(ErrorKind::io, "{}: the server sends bytes that are not those of {}, twice; nothing of them was kept", what, file.digest().text());
}

}  // namespace forge
