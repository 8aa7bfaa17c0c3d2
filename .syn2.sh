cd /work/src/build; mkdir -p /tmp/steady_obj
ninja -t commands libassay_cuda.so > /tmp/steady_obj/cmds
c=$(grep -E "assay_kit_cuda.dir/__/device/timing.cpp.o -c" /tmp/steady_obj/cmds | sed 's/ -MD -MT [^ ]* -MF [^ ]*//; s# -o [^ ]*timing.cpp.o# -o /tmp/steady_obj/timing.o#; s/^ccache //')
eval "$c" || exit 1
l=$(grep -E -- "-o libassay_cuda.so" /tmp/steady_obj/cmds | sed 's/^: && //; s/ && :$//; s#-o libassay_cuda.so#-o /tmp/steady_obj/libassay_cuda.so#')
out=""; for w in $l; do case $w in *.o) [ -f "$w" ] && case $w in *device/timing.cpp.o) out="$out /tmp/steady_obj/timing.o";; *) out="$out $w";; esac;; libassay_kit_cuda.a) cp $w /tmp/steady_obj/kit.a; (cd /tmp/steady_obj && cp timing.o timing.cpp.o && ar r kit.a timing.cpp.o); out="$out /tmp/steady_obj/kit.a";; *) out="$out $w";; esac; done
eval "$out" 2>&1 | tail -5
ls -la /tmp/steady_obj; cp /tmp/steady_obj/libassay_cuda.so /work/src/build/steady_cuda.so
