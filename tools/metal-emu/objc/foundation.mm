#include <Block.h>
#import <Foundation/Foundation.h>
#include <unwind.h>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
// clang's gcc runtime gives every frame of a .mm GCC's Objective-C personality, which cannot match C++ types.
// Nothing here uses @try, so the C++ personality is the right one: the same LSDA format.
extern "C" _Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class,
                                                    struct _Unwind_Exception*, struct _Unwind_Context*);
extern "C" _Unwind_Reason_Code __gnu_objc_personality_v0(int v, _Unwind_Action a, _Unwind_Exception_Class c,
                                                         struct _Unwind_Exception* e,
                                                         struct _Unwind_Context* x) {
    return __gxx_personality_v0(v, a, c, e, x);
}
static std::atomic<long> g_live{0};
long EmuLiveObjects(void) { return g_live; }
@implementation NSObject
+ (void)load_ {
}
+ (id)alloc {
    g_live++;
    NSObject* o = class_createInstance(self, 0);
    o->_rc = 1;
    return o;
}
+ (id)new {
    return [[self alloc] init];
}
+ (Class)class {
    return self;
}
- (id)init {
    return self;
}
- (void)dealloc {
    g_live--;
    object_dispose(self);
}
- (id)retain {
    __atomic_add_fetch(&_rc, 1, __ATOMIC_RELAXED);
    return self;
}
- (oneway void)release {
    int r = __atomic_sub_fetch(&_rc, 1, __ATOMIC_ACQ_REL);
    if (r == 0)
        [self dealloc];
    else if (r < 0) {
        fprintf(stderr, "over-release of %s\n", class_getName(isa));
        abort();
    }
}
- (id)autorelease {
    [NSAutoreleasePool addObject:self];
    return self;
}
- (NSUInteger)retainCount {
    return _rc;
}
- (Class)class {
    return isa;
}
- (BOOL)isKindOfClass:(Class)c {
    for (Class k = isa; k; k = class_getSuperclass(k))
        if (k == c) return YES;
    return NO;
}
- (BOOL)respondsToSelector:(SEL)s {
    return class_respondsToSelector(isa, s);
}
- (BOOL)conformsToProtocol:(Protocol*)p {
    for (Class k = isa; k; k = class_getSuperclass(k))
        if (class_conformsToProtocol(k, p)) return YES;
    return NO;
}
- (BOOL)isEqual:(id)o {
    return o == self;
}
- (NSUInteger)hash {
    return (NSUInteger)self >> 4;
}
- (NSString*)description {
    return [NSString stringWithUTF8String:class_getName(isa)];
}
@end
static thread_local NSAutoreleasePool* t_pool;
@implementation NSAutoreleasePool
- (id)init {
    _parent = t_pool;
    _v = new std::vector<id>;
    t_pool = self;
    return self;
}
+ (void)addObject:(id)o {
    if (!t_pool) {
        fprintf(stderr, "autorelease with no pool in place: %s leaks\n", class_getName(object_getClass(o)));
        return;
    }
    ((std::vector<id>*)t_pool->_v)->push_back(o);
}
- (void)drain {
    while (t_pool && t_pool != self) [t_pool drain];
    auto* v = (std::vector<id>*)_v;
    while (!v->empty()) {
        id o = v->back();
        v->pop_back();
        [o release];
    }
    delete v;
    t_pool = _parent;
    [super release];
}
- (oneway void)release {
    [self drain];
}
@end
@interface NSHeapString : NSString {
    char* _p;
    NSUInteger _len;
}
@end
@implementation NSString
+ (id)alloc {
    if (self == [NSString class]) return [NSHeapString alloc];
    return [super alloc];
}
+ (NSString*)stringWithUTF8String:(const char*)s {
    return [[[NSString alloc] initWithUTF8String:s] autorelease];
}
+ (NSString*)string {
    return @"";
}
- (id)initWithUTF8String:(const char*)s {
    return self;
}
- (id)initWithBytes:(const void*)b length:(NSUInteger)n encoding:(NSUInteger)e {
    return self;
}
- (const char*)UTF8String {
    return "";
}
- (NSUInteger)length {
    return 0;
}
- (BOOL)isEqualToString:(NSString*)o {
    return !strcmp([self UTF8String], [o UTF8String]);
}
- (NSString*)description {
    return self;
}
@end
@implementation NSHeapString
- (id)initWithUTF8String:(const char*)s {
    _p = strdup(s);
    _len = strlen(s);
    return self;
}
- (id)initWithBytes:(const void*)b length:(NSUInteger)n encoding:(NSUInteger)e {
    _p = strndup((const char*)b, n);
    _len = n;
    return self;
}
- (const char*)UTF8String {
    return _p;
}
- (NSUInteger)length {
    return _len;
}
- (void)dealloc {
    free(_p);
    [super dealloc];
}
@end
struct CStr {
    Class isa;
    const char* s;
    unsigned n;
};  // what clang emits: shorter than NSObject's ivars, so no ivar access
@implementation NSConstantString
- (const char*)UTF8String {
    return ((CStr*)self)->s;
}
- (NSUInteger)length {
    return ((CStr*)self)->n;
}
- (id)retain {
    return self;
}
- (oneway void)release {
}
- (id)autorelease {
    return self;
}
@end
@implementation NSError
+ (NSError*)errorWithMessage_:(const char*)m code:(NSInteger)c {
    NSError* e = [[NSError alloc] init];
    e->_d = [[NSString alloc] initWithUTF8String:m];
    e->_c = c;
    return [e autorelease];
}
- (NSString*)localizedDescription {
    return _d;
}
- (NSInteger)code {
    return _c;
}
- (void)dealloc {
    [_d release];
    [super dealloc];
}
@end
@implementation NSArray
+ (id)arrayWithObjects:(const id*)o count:(NSUInteger)n {
    NSArray* a = [[NSArray alloc] init];
    a->_o = (id*)calloc(n + 1, sizeof(id));
    a->_n = n;
    for (NSUInteger i = 0; i < n; i++) a->_o[i] = [o[i] retain];
    return [a autorelease];
}
- (NSUInteger)count {
    return _n;
}
- (id)objectAtIndex:(NSUInteger)i {
    return _o[i];
}
- (id)objectAtIndexedSubscript:(NSUInteger)i {
    return _o[i];
}
- (void)dealloc {
    for (NSUInteger i = 0; i < _n; i++) [_o[i] release];
    free(_o);
    [super dealloc];
}
@end
void NSLog(NSString* f, ...) { fprintf(stderr, "%s\n", [f UTF8String]); }
