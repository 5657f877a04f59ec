// Device, buffers, libraries, pipelines.
#include <Block.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "metal_emu/touched.h"
#include "objects.h"

static std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

const EmuSettings& emu_settings() {
    static const EmuSettings settings = [] {
        const std::string check = environment("METAL_EMU_CHECK"), profile = environment("METAL_EMU_PROFILE");
        const int workers = std::atoi(environment("METAL_EMU_WORKERS").c_str());
        const std::string count = environment("METAL_EMU_COUNT");
        return EmuSettings{!check.empty() && check != "0", !count.empty() && count != "0", std::strtoull(environment("METAL_EMU_SEED").c_str(), nullptr, 10), workers > 0 ? workers : 2,
                           profile == "m5"   ? metal_emu::Profile::m5
                           : profile == "m3" ? metal_emu::Profile::m3
                                             : metal_emu::Profile::m1};
    }();
    return settings;
}

void emu_misuse(const std::string& what) {
    std::fprintf(stderr, "Metal emulation: the API is misused: %s\n", what.c_str());
    std::abort();
}

void emu_set_error(NSError** error, const std::string& message, int code) {
    if (error) *error = [NSError errorWithMessage_:message.c_str() code:code];
}

@implementation MTLCompileOptions
@synthesize mathMode = _mm, fastMathEnabled = _fm, languageVersion = _lv;
- (id)init {
    _fm = YES;
    _mm = MTLMathModeFast;
    return self;
}
@end

@implementation MTLResidencySetDescriptor
@synthesize initialCapacity = _cap;
@end

static std::string constant_text(const void* value, MTLDataType type) {
    char text[64];
    switch (type) {
        case MTLDataTypeBool: return *(const bool*)value ? "true" : "false";
        case MTLDataTypeUInt: std::snprintf(text, sizeof text, "%uu", *(const uint32_t*)value); return text;
        case MTLDataTypeInt: std::snprintf(text, sizeof text, "%d", *(const int32_t*)value); return text;
        case MTLDataTypeUShort: std::snprintf(text, sizeof text, "%u", *(const uint16_t*)value); return text;
        case MTLDataTypeFloat: std::snprintf(text, sizeof text, "%af", (double)*(const float*)value); return text;
        default: emu_misuse("this type of function constant is not emulated");
    }
}
using Constants = std::vector<metal_emu::FunctionConstant>;
@interface MTLFunctionConstantValues (Emulation)
- (const Constants&)values_;
@end
@implementation MTLFunctionConstantValues
- (id)init {
    _v = new Constants;
    return self;
}
- (void)dealloc {
    delete (Constants*)_v;
    [super dealloc];
}
- (const Constants&)values_ {
    return *(Constants*)_v;
}
- (void)setConstantValue:(const void*)v type:(MTLDataType)t atIndex:(NSUInteger)i {
    ((Constants*)_v)->push_back({(int)i, "", "", constant_text(v, t)});
}
- (void)setConstantValue:(const void*)v type:(MTLDataType)t withName:(NSString*)n {
    ((Constants*)_v)->push_back({-1, [n UTF8String], "", constant_text(v, t)});
}
@end

// Buffers that live, for buffer_use().
static std::mutex g_buffers_mutex;
static std::vector<EmuBuffer*> g_buffers;

std::vector<metal_emu::BufferUse> metal_emu::buffer_use() {
    std::lock_guard<std::mutex> lock(g_buffers_mutex);
    std::vector<BufferUse> uses;
    for (EmuBuffer* b : g_buffers) uses.push_back({b->_label ? [b->_label UTF8String] : "", b->_length, touched(b->_memory, b->_length)});
    return uses;
}

@implementation EmuBuffer
- (id)init {
    std::lock_guard<std::mutex> lock(g_buffers_mutex);
    g_buffers.push_back(self);
    return self;
}
- (void*)contents {
    return _memory;
}
- (NSUInteger)length {
    return _length;
}
- (NSUInteger)allocatedSize {
    return _length;
}
- (NSString*)label {
    return _label;
}
- (void)setLabel:(NSString*)label {
    [label retain];
    [_label release];
    _label = label;
}
- (void)dealloc {
    {
        std::lock_guard<std::mutex> lock(g_buffers_mutex);
        g_buffers.erase(std::find(g_buffers.begin(), g_buffers.end(), self));
    }
    if (_own) std::free(_memory);
    if (_deallocator) {
        _deallocator(_memory, _length);
        Block_release(_deallocator);
    }
    [_label release];
    [super dealloc];
}
@end

@implementation EmuFunction
- (NSString*)name {
    return _name;
}
- (void)dealloc {
    delete _compiled;
    [_name release];
    [_library release];
    [super dealloc];
}
@end

static metal_emu::CompileOptions compile_options() {
    metal_emu::CompileOptions options;
    options.check = emu_settings().check || emu_settings().count;
    options.address_spaces = !options.check;
    options.profile = emu_settings().profile;
    return options;
}

@implementation EmuLibrary
- (void)dealloc {
    delete _library;
    delete _compiled;
    [super dealloc];
}
- (NSArray*)functionNames {
    std::vector<id> names;
    for (const auto& f : _library->functions) names.push_back([NSString stringWithUTF8String:f.name.c_str()]);
    return [NSArray arrayWithObjects:names.data() count:names.size()];
}
- (id<MTLFunction>)make_:(NSString*)name constants:(const Constants&)constants error:(NSError**)error {
    const std::string wanted = [name UTF8String];
    const metal_emu::Function* function = nullptr;
    for (const auto& f : _library->functions)
        if (f.name == wanted) function = &f;
    if (!function) {
        emu_set_error(error, "no function " + wanted);
        return nil;
    }
    std::shared_ptr<metal_emu::Compiled> compiled = _compiled ? *_compiled : nullptr;
    if (!compiled) {
        compiled = std::make_shared<metal_emu::Compiled>(metal_emu::compile(*_library, {wanted}, constants, compile_options()));
        if (!compiled->ok) {
            emu_set_error(error, compiled->log, 3);
            return nil;
        }
    }
    EmuFunction* result = [[EmuFunction alloc] init];
    result->_name = [name retain];
    result->_compiled = new std::shared_ptr<metal_emu::Compiled>(compiled);
    result->_function = function;
    result->_library = [self retain];
    return result;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
    return [self make_:name constants:{} error:nullptr];
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name constantValues:(MTLFunctionConstantValues*)values error:(NSError**)error {
    return [self make_:name constants:[values values_] error:error];
}
@end

@implementation EmuPipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return 1024;
}
- (NSUInteger)threadExecutionWidth {
    return 32;
}
- (NSUInteger)staticThreadgroupMemoryLength {
    return 0;
}
- (void)dealloc {
    [_function release];
    [super dealloc];
}
@end

@interface EmuResidency : NSObject <MTLResidencySet> {
    std::vector<id>* _allocations;
}
@end
@implementation EmuResidency
- (id)init {
    _allocations = new std::vector<id>;
    return self;
}
- (void)dealloc {
    for (id a : *_allocations) [a release];
    delete _allocations;
    [super dealloc];
}
- (void)addAllocation:(id<MTLAllocation>)a {
    _allocations->push_back([a retain]);
}
- (void)removeAllocation:(id<MTLAllocation>)a {
    for (size_t i = 0; i < _allocations->size(); i++) {
        if ((*_allocations)[i] != a) continue;
        [a release];
        _allocations->erase(_allocations->begin() + (long)i);
        return;
    }
}
- (void)commit {
}
- (void)requestResidency {
}
- (void)endResidency {
}
- (NSUInteger)allocationCount {
    return _allocations->size();
}
@end

@interface EmuDevice : NSObject <MTLDevice>
@end
@implementation EmuDevice
- (NSString*)name {
    return @"emulated Apple GPU";
}
- (NSUInteger)maxBufferLength {
    return 1ul << 34;
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return metal_emu::kThreadgroupMemory;
}
- (NSUInteger)currentAllocatedSize {
    return 0;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return 8ull << 30;
}
- (BOOL)hasUnifiedMemory {
    return YES;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
    const metal_emu::Profile profile = emu_settings().profile;
    switch (family) {
        case MTLGPUFamilyApple7:
        case MTLGPUFamilyMetal3:
        case MTLGPUFamilyMetal4: return YES;   // of the system
        case MTLGPUFamilyApple8:
        case MTLGPUFamilyApple9: return profile != metal_emu::Profile::m1;
        case MTLGPUFamilyApple10: return profile == metal_emu::Profile::m5;
    }
    return NO;
}
- (id<MTLCommandQueue>)newCommandQueue {
    return [[EmuQueue alloc] init];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)n options:(MTLResourceOptions)options {
    if (n == 0) emu_misuse("a buffer of no length");
    EmuBuffer* b = [[EmuBuffer alloc] init];
    b->_memory = (char*)std::aligned_alloc(16384, (n + 16383) / 16384 * 16384);
    std::memset(b->_memory, options & MTLResourceStorageModePrivate ? 0xff : 0, n);
    b->_length = n;
    b->_own = true;
    return b;
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)p length:(NSUInteger)n options:(MTLResourceOptions)options {
    id<MTLBuffer> b = [self newBufferWithLength:n options:options];
    std::memcpy([b contents], p, n);
    return b;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)p length:(NSUInteger)n options:(MTLResourceOptions)options deallocator:(void (^)(void*, NSUInteger))d {
    // Apple's pages are 16 KiB; this machine's decide here.
    const uintptr_t page = (uintptr_t)getpagesize();
    if ((uintptr_t)p % page || n % page || n == 0) emu_misuse("newBufferWithBytesNoCopy wants whole pages");
    EmuBuffer* b = [[EmuBuffer alloc] init];
    b->_memory = (char*)p;
    b->_length = n;
    if (d) b->_deallocator = (void (^)(void*, NSUInteger))Block_copy(d);
    return b;
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error {
    std::string message;
    metal_emu::Library library = metal_emu::parse([source UTF8String], &message);
    if (!message.empty()) {
        emu_set_error(error, message, 3);
        return nil;
    }
    if (library.source.find("<metal_tensor>") != std::string::npos && options && [options languageVersion] != 0 && [options languageVersion] < MTLLanguageVersion4_0) {
        emu_set_error(error, "metal_tensor wants MTLLanguageVersion4_0", 3);
        return nil;
    }
    std::shared_ptr<metal_emu::Compiled> compiled;
    const bool constants = !metal_emu::declared_constants(library.source).empty();
    metal_emu::CompileOptions how = compile_options();
    // Address spaces are checked in every mode, as Metal's compiler does.
    if (constants || how.check) {
        metal_emu::CompileOptions syntax = how;
        syntax.check = false;
        syntax.address_spaces = syntax.syntax_only = true;
        const metal_emu::Compiled typed = metal_emu::compile(library, {}, {}, syntax);
        if (!typed.ok) {
            emu_set_error(error, typed.log, 3);
            return nil;
        }
    }
    if (!constants) {
        compiled = std::make_shared<metal_emu::Compiled>(metal_emu::compile(library, {}, {}, how));
        if (!compiled->ok) {
            emu_set_error(error, compiled->log, 3);
            return nil;
        }
    }
    EmuLibrary* result = [[EmuLibrary alloc] init];
    result->_library = new metal_emu::Library(std::move(library));
    if (compiled) result->_compiled = new std::shared_ptr<metal_emu::Compiled>(compiled);
    return result;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError**)error {
    EmuPipeline* p = [[EmuPipeline alloc] init];
    p->_function = [(EmuFunction*)function retain];
    return p;
}
- (id<MTLSharedEvent>)newSharedEvent {
    return [[EmuEvent alloc] init];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor error:(NSError**)error {
    return [[EmuResidency alloc] init];
}
@end

// One device, and what its compiler needs must be there.
id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    if (!metal_emu::compiler_available(nullptr)) return nil;
    return [[EmuDevice alloc] init];
}
