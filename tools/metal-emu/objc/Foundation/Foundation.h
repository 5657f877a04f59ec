// The part of Foundation that Metal host code here uses, over GCC's Objective-C runtime. Manual reference counting.
#pragma once
#include <objc/objc.h>
#include <objc/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef double CFTimeInterval;
typedef double NSTimeInterval;
typedef struct _NSRange {
    NSUInteger location, length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger l, NSUInteger n) {
    NSRange r = {l, n};
    return r;
}
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_ENUM(T, N) \
    enum N : T N;     \
    enum N : T
#define NS_OPTIONS(T, N) \
    enum N : T N;        \
    enum N : T
#define API_AVAILABLE(...)
#ifndef nil
#define nil ((id)0)
#endif
@class NSString, NSError, NSArray;
@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (NSUInteger)retainCount;
- (Class)class;
- (BOOL)isKindOfClass:(Class)c;
- (BOOL)respondsToSelector:(SEL)s;
- (BOOL)conformsToProtocol:(Protocol*)p;
- (BOOL)isEqual:(id)o;
- (NSUInteger)hash;
- (NSString*)description;
@end
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
    int _rc;
}
+ (id)alloc;
+ (id)new;
+ (Class)class;
+ (void)load_;
- (id)init;
- (void)dealloc;
@end
@interface NSAutoreleasePool : NSObject {
    NSAutoreleasePool* _parent;
    void* _v;
}
- (void)drain;
+ (void)addObject:(id)o;
@end
@interface NSString : NSObject
+ (NSString*)stringWithUTF8String:(const char*)s;
+ (NSString*)string;
- (id)initWithUTF8String:(const char*)s;
- (id)initWithBytes:(const void*)b length:(NSUInteger)n encoding:(NSUInteger)e;
- (const char*)UTF8String;
- (NSUInteger)length;
- (BOOL)isEqualToString:(NSString*)o;
@end
enum { NSUTF8StringEncoding = 4 };
@interface NSConstantString : NSString {
    const char* _s;
    unsigned _n;
}
@end  // layout known to the compiler: {isa, chars, length}
@interface NSError : NSObject {
    NSString* _d;
    NSInteger _c;
}
+ (NSError*)errorWithMessage_:(const char*)m code:(NSInteger)c;
- (NSString*)localizedDescription;
- (NSInteger)code;
@end
@interface NSArray : NSObject {
    id* _o;
    NSUInteger _n;
}
+ (id)arrayWithObjects:(const id*)o count:(NSUInteger)n;
- (NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)i;
- (id)objectAtIndexedSubscript:(NSUInteger)i;
@end
#ifdef __cplusplus
extern "C" {
#endif
long EmuLiveObjects(void);  // emulation only: for leak tests
void NSLog(NSString* f, ...);
#ifdef __cplusplus
}
#endif
