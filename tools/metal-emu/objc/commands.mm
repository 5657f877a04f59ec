// Queues, command buffers, encoders, events. Commands are recorded and executed in order on the queue's thread.
#include <Block.h>

#include <chrono>

#include "metal_emu/launch.h"
#include "objects.h"

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

@implementation EmuEvent
- (id)init {
    _mutex = new std::mutex;
    _changed = new std::condition_variable;
    return self;
}
- (void)dealloc {
    delete _mutex;
    delete _changed;
    [super dealloc];
}
- (uint64_t)signaledValue {
    std::lock_guard<std::mutex> lock(*_mutex);
    return _value;
}
- (void)setSignaledValue:(uint64_t)v {
    {
        std::lock_guard<std::mutex> lock(*_mutex);
        _value = v;
    }
    _changed->notify_all();
}
- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms {
    std::unique_lock<std::mutex> lock(*_mutex);
    return _changed->wait_for(lock, std::chrono::milliseconds(ms), [&] { return _value >= v; });
}
@end

@implementation EmuEncoder
- (void)dealloc {
    for (auto* b : _bytes) delete b;
    [_label release];
    [_pipeline release];
    [super dealloc];
}
- (MTLDispatchType)dispatchType {
    return _type;
}
- (NSString*)label {
    return _label;
}
- (void)setLabel:(NSString*)label {
    [label retain];
    [_label release];
    _label = label;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)p {
    [p retain];
    [_pipeline release];
    _pipeline = (EmuPipeline*)p;
}
- (void)setBuffer:(id<MTLBuffer>)b offset:(NSUInteger)offset atIndex:(NSUInteger)i {
    if (i >= metal_emu::kBuffers) emu_misuse("a buffer index over 30");
    EmuBuffer* buffer = (EmuBuffer*)b;
    if (buffer && offset >= buffer->_length) emu_misuse("a buffer offset past the end");
    _buffers[i] = buffer;
    _offsets[i] = offset;
    delete _bytes[i];
    _bytes[i] = nullptr;
    if (buffer) [_commandBuffer keep_:buffer];
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)i {
    if (i >= metal_emu::kBuffers || !_buffers[i]) emu_misuse("setBufferOffset where no buffer is set");
    if (offset >= _buffers[i]->_length) emu_misuse("a buffer offset past the end");
    _offsets[i] = offset;
}
- (void)setBytes:(const void*)b length:(NSUInteger)n atIndex:(NSUInteger)i {
    if (i >= metal_emu::kBuffers) emu_misuse("a buffer index over 30");
    if (n > 4096) emu_misuse("setBytes of more than 4 KiB");
    delete _bytes[i];
    _bytes[i] = new std::vector<char>((const char*)b, (const char*)b + n);
    _buffers[i] = nil;
}
- (void)setThreadgroupMemoryLength:(NSUInteger)n atIndex:(NSUInteger)i {
    if (i >= metal_emu::kThreadgroupArguments) emu_misuse("a threadgroup memory index over 7");
    if (n % 16) emu_misuse("a threadgroup memory length that is no multiple of 16");
    _threadgroup[i] = n;
}
- (void)dispatchThreadgroups:(MTLSize)g threadsPerThreadgroup:(MTLSize)t {
    if (_ended || !_pipeline) emu_misuse("a dispatch without a pipeline or after endEncoding");
    if (t.width * t.height * t.depth > 1024 || t.width * t.height * t.depth == 0) emu_misuse("a threadgroup of no or of more than 1024 threads");
    if (g.width * g.height * g.depth == 0) emu_misuse("an empty grid");
    auto launch = std::make_shared<metal_emu::Launch>();
    auto inline_bytes = std::make_shared<std::vector<std::vector<char>>>();
    EmuFunction* f = _pipeline->_function;
    [_commandBuffer keep_:_pipeline];
    const metal_emu::Compiled& compiled = **f->_compiled;
    launch->entry = compiled.entries.find(f->_function->name)->second;
    launch->name = f->_function->name.c_str();
    launch->image_low = compiled.image_low;
    launch->image_high = compiled.image_high;
    launch->check = emu_settings().check;
    launch->seed = emu_settings().seed;
    launch->workers = emu_settings().workers;
    launch->grid[0] = (uint32_t)g.width, launch->grid[1] = (uint32_t)g.height, launch->grid[2] = (uint32_t)g.depth;
    launch->threads[0] = (uint32_t)t.width, launch->threads[1] = (uint32_t)t.height, launch->threads[2] = (uint32_t)t.depth;
    size_t total = 0;
    for (int i = 0; i < metal_emu::kThreadgroupArguments; i++) total += launch->threadgroup_bytes[i] = _threadgroup[i];
    if (total > metal_emu::kThreadgroupMemory) emu_misuse("more than 32 KiB of threadgroup memory");
    inline_bytes->reserve(metal_emu::kBuffers);
    for (const auto& p : f->_function->parameters) {
        if (p.attribute == "threadgroup" && !_threadgroup[p.index]) emu_misuse("kernel " + f->_function->name + ": the length of threadgroup memory " + std::to_string(p.index) + " is not set");
        if (p.attribute != "buffer") continue;
        const int i = p.index;
        if (_buffers[i]) {
            launch->buffers[i] = _buffers[i]->_memory + _offsets[i];
            launch->bytes[i] = _buffers[i]->_length - _offsets[i];
        } else if (_bytes[i]) {
            inline_bytes->push_back(*_bytes[i]);
            launch->buffers[i] = inline_bytes->back().data();
            launch->bytes[i] = inline_bytes->back().size();
        } else {
            emu_misuse("kernel " + f->_function->name + ": no buffer is bound at index " + std::to_string(i) + " (" + p.name + ")");
        }
        launch->read_only[i] = p.type.find("constant") != std::string::npos || p.type.find("const ") != std::string::npos;
    }
    EmuCommands& commands = *_commandBuffer->_commands;
    commands.launches.push_back({launch.get(), commands.epoch});
    commands.list.push_back([launch, inline_bytes](std::string& error) {
        for (const std::string& finding : metal_emu::run(*launch)) error += finding + "\n";
        return error.empty();
    });
    if (_type == MTLDispatchTypeSerial) [_commandBuffer add_barrier_];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    if (scope & MTLBarrierScopeBuffers) [_commandBuffer add_barrier_];
}
- (void)endEncoding {
    if (_ended) emu_misuse("endEncoding twice");
    _ended = true;
    _commandBuffer->_commands->encoding = false;
    [_commandBuffer add_barrier_];
}
@end

// Accesses of different epochs are ordered, so a read-only range that no dispatch of its epoch writes needs its
// bounds checked and no more.
static void find_constant_bindings(EmuCommands& commands) {
    for (auto& [launch, epoch] : commands.launches)
        for (int i = 0; i < metal_emu::kBuffers; i++) {
            if (!launch->buffers[i] || !launch->read_only[i]) continue;
            const auto low = (uintptr_t)launch->buffers[i], high = low + launch->bytes[i];
            bool written = false;
            for (const auto& [other, other_epoch] : commands.launches)
                for (int k = 0; other_epoch == epoch && k < metal_emu::kBuffers && !written; k++) {
                    const auto start = (uintptr_t)other->buffers[k];
                    written = other->buffers[k] && !other->read_only[k] && low < start + other->bytes[k] && start < high;
                }
            launch->constant[i] = !written;
        }
}

@implementation EmuCommandBuffer
- (id)init {
    _commands = new EmuCommands;
    return self;
}
- (void)dealloc {
    for (id o : _commands->kept) [o release];
    for (auto h : _commands->handlers) Block_release(h);
    delete _commands;
    [_error release];
    [_queue release];
    [super dealloc];
}
- (void)keep_:(id)object {
    _commands->kept.push_back([object retain]);
}
- (void)add_barrier_ {
    _commands->epoch++;
    _commands->list.push_back([](std::string&) {
        metal_emu::memory_barrier();
        return true;
    });
}
- (MTLCommandBufferStatus)status {
    std::lock_guard<std::mutex> lock(_commands->mutex);
    return _commands->status;
}
- (NSError*)error {
    return _error;
}
- (CFTimeInterval)GPUStartTime {
    return _commands->start;
}
- (CFTimeInterval)GPUEndTime {
    return _commands->end;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
    return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
    if (_commands->encoding) emu_misuse("a second encoder before endEncoding of the first");
    EmuEncoder* e = [[EmuEncoder alloc] init];
    e->_commandBuffer = self;
    e->_type = type;
    _commands->encoding = true;
    return [e autorelease];
}
- (void)encodeSignalEvent:(id<MTLEvent>)e value:(uint64_t)v {
    EmuEvent* event = (EmuEvent*)e;
    [self keep_:event];
    _commands->list.push_back([event, v](std::string&) {
        event.signaledValue = v;
        return true;
    });
}
- (void)encodeWaitForEvent:(id<MTLEvent>)e value:(uint64_t)v {
    EmuEvent* event = (EmuEvent*)e;
    [self keep_:event];
    _commands->list.push_back([event, v](std::string& error) {
        if ([event waitUntilSignaledValue:v timeoutMS:10000]) return true;
        error = "waiting for an event took more than 10 s";
        return false;
    });
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)h {
    if ([self status] >= MTLCommandBufferStatusCommitted) emu_misuse("addCompletedHandler after commit");
    _commands->handlers.push_back((MTLCommandBufferHandler)Block_copy(h));
}
- (void)enqueue {
}
- (void)commit {
    if (_commands->encoding) emu_misuse("commit before endEncoding");
    {
        std::lock_guard<std::mutex> lock(_commands->mutex);
        if (_commands->status >= MTLCommandBufferStatusCommitted) emu_misuse("commit twice");
        _commands->status = MTLCommandBufferStatusCommitted;
    }
    [self retain];
    EmuCommandBuffer* me = self;
    [_queue push_:[me] {
        @autoreleasepool {
            [me run_];
        }
        [me release];
    }];
}
- (void)run_ {
    EmuCommands& c = *_commands;
    c.start = now();
    find_constant_bindings(c);
    std::string error;
    bool ok = true;
    for (auto& command : c.list)
        if (!(ok = command(error))) break;
    metal_emu::memory_barrier();
    c.end = now();
    if (!ok) _error = [[NSError errorWithMessage_:error.c_str() code:2] retain];
    {
        std::lock_guard<std::mutex> lock(c.mutex);
        c.status = ok ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError;
    }
    for (auto h : c.handlers) h(self);
    for (id o : c.kept) [o release];
    c.kept.clear();
    c.list.clear();
    {
        std::lock_guard<std::mutex> lock(c.mutex);
        c.finished = true;
    }
    c.changed.notify_all();
}
- (void)waitUntilCompleted {
    if ([self status] < MTLCommandBufferStatusCommitted) emu_misuse("waitUntilCompleted before commit");
    std::unique_lock<std::mutex> lock(_commands->mutex);
    _commands->changed.wait(lock, [&] { return _commands->finished; });
}
@end

@implementation EmuQueue
- (id)init {
    auto state = std::make_shared<EmuQueueState>();
    _state = new std::shared_ptr<EmuQueueState>(state);
    _thread = new std::thread([state] {
        for (;;) {
            std::function<void()> work;
            {
                std::unique_lock<std::mutex> lock(state->mutex);
                state->changed.wait(lock, [&] { return state->stop || !state->work.empty(); });
                if (state->work.empty()) return;
                work = std::move(state->work.front());
                state->work.pop_front();
            }
            work();
        }
    });
    return self;
}
- (void)push_:(std::function<void()>)work {
    {
        std::lock_guard<std::mutex> lock((*_state)->mutex);
        (*_state)->work.push_back(std::move(work));
    }
    (*_state)->changed.notify_one();
}
- (void)dealloc {
    {
        std::lock_guard<std::mutex> lock((*_state)->mutex);
        (*_state)->stop = true;
    }
    (*_state)->changed.notify_one();
    if (_thread->get_id() == std::this_thread::get_id()) _thread->detach();
    else _thread->join();
    delete _thread;
    delete _state;
    [super dealloc];
}
- (id<MTLCommandBuffer>)commandBuffer {
    EmuCommandBuffer* c = [[EmuCommandBuffer alloc] init];
    c->_queue = [self retain];
    return [c autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
    return [self commandBuffer];
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
}
@end
