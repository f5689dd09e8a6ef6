// One end of a Netty connection for the transport benchmark: `receive` listens, `send` connects.
//
//     java -cp 'netty jars' NettyPair receive|send nio|epoll
//
// Both ends read cases from stdin and answer with a line of JSON, like the Python workers. Messages are framed by
// Netty's own length field codec, as stream processors do; the sender's thread copies a byte array into a pooled
// direct buffer and hands it to the event loop, the receiver reads the stamp in the frame that the decoder gives out,
// without copying it to the heap (which favours Netty: a stream processor would). System.nanoTime is CLOCK_MONOTONIC on
// Linux, the clock of the Python ends. The paper (003, section II) measures its server and client the same way.
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.AdaptiveRecvByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.codec.LengthFieldPrepender;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

public final class NettyPair {
    private static final int FRAME_MAX = 64 << 20;
    private static final long STAMP_END = -1;
    private static final long CASE_SECONDS_MAX = 120;
    private static final int WAITING_MAX = 4 << 20;  // bytes in the send buffer; its default of 64 KB slows Netty down
    private static final int READ_MAX = 1 << 20;     // its default of 64 KB needs several reads for a large message

    private static boolean epoll;
    private static Counter counter = new Counter(0, 0, false);
    private static Thread writer;

    /** What arrives while a case runs; only the event loop touches it until `done`. */
    private static final class Counter {
        final int warm;
        final long[] latency;
        final boolean flat;
        final CountDownLatch done = new CountDownLatch(1);
        long messages;
        long began;
        long ended;
        long cpuBegan;
        long cpuEnded;

        Counter(int warm, int count, boolean flat) {
            this.warm = warm;
            this.latency = new long[count];
            this.flat = flat;
        }

        void take(long stamp, long now) {
            if (flat) {
                if (messages++ == 0) {
                    start(now);
                }
                if (stamp == STAMP_END) {
                    messages--;
                    finish(now);
                }
                return;
            }
            int number = (int) messages++ - warm;
            if (number == -1) {
                start(now);
            }
            if (number >= 0 && number < latency.length) {
                latency[number] = now - stamp;
                if (number == latency.length - 1) {
                    finish(now);
                }
            }
        }

        void start(long now) {
            began = now;
            cpuBegan = cpuNanos();
        }

        void finish(long now) {
            ended = now;
            cpuEnded = cpuNanos();
            done.countDown();
        }

        String json() {
            StringBuilder text = new StringBuilder("{\"seconds\": ").append((ended - began) / 1e9);
            text.append(", \"cpu_seconds\": ").append((cpuEnded - cpuBegan) / 1e9);
            if (flat) {
                return text.append(", \"messages\": ").append(messages).append("}").toString();
            }
            text.append(", \"latency_ns\": [");
            for (int number = 0; number < latency.length; number++) {
                text.append(number == 0 ? "" : ",").append(latency[number]);
            }
            return text.append("]}").toString();
        }
    }

    private static long cpuNanos() {
        java.lang.management.OperatingSystemMXBean system = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime();
    }

    private static final class Receiving extends SimpleChannelInboundHandler<ByteBuf> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, ByteBuf frame) {
            long stamp = frame.getLongLE(frame.readerIndex());
            counter.take(stamp, System.nanoTime());
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            LockSupport.unpark(writer);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            cause.printStackTrace();
            System.exit(1);
        }
    }

    private static ChannelInitializer<Channel> codec() {
        return new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel channel) {
                channel.pipeline().addLast(
                        new LengthFieldBasedFrameDecoder(FRAME_MAX, 0, 4, 0, 4), new LengthFieldPrepender(4), new Receiving());
            }
        };
    }

    private static EventLoopGroup loop() {
        IoHandlerFactory handler = epoll ? EpollIoHandler.newFactory() : NioIoHandler.newFactory();
        return new MultiThreadIoEventLoopGroup(1, handler);
    }

    private static Channel listen() throws InterruptedException {
        Class<? extends ServerChannel> kind = epoll ? EpollServerSocketChannel.class : NioServerSocketChannel.class;
        EventLoopGroup group = loop();
        return new ServerBootstrap().group(group, group).channel(kind).childHandler(codec())
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.RCVBUF_ALLOCATOR, new AdaptiveRecvByteBufAllocator(2048, 65536, READ_MAX))
                .bind(new InetSocketAddress("127.0.0.1", 0)).sync().channel();
    }

    private static Channel connect(int port) throws InterruptedException {
        Class<? extends Channel> kind = epoll ? EpollSocketChannel.class : NioSocketChannel.class;
        return new Bootstrap().group(loop()).channel(kind).handler(codec())
                .option(ChannelOption.TCP_NODELAY, true)
                .option(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(WAITING_MAX / 2, WAITING_MAX))
                .connect("127.0.0.1", port).sync().channel();
    }

    private static void send(Channel channel, byte[] message, long stamp) {
        while (!channel.isWritable()) {
            LockSupport.parkNanos(1_000_000);
        }
        ByteBuf buffer = channel.alloc().directBuffer(message.length);
        buffer.writeLongLE(stamp).writeBytes(message, 8, message.length - 8);
        channel.writeAndFlush(buffer, channel.voidPromise());
    }

    /** The open schedule of the Python rig: stamps after the sleep, or the due time when sending held us up. */
    private static void sendPaced(Channel channel, byte[] message, double rate, int count) {
        long gap = Math.round(1e9 / rate);
        long due = System.nanoTime() + gap;
        for (int number = 0; number < count; number++) {
            long stamp = System.nanoTime();
            if (stamp < due) {
                while ((stamp = System.nanoTime()) < due) {
                    LockSupport.parkNanos(due - stamp);
                }
                if (stamp - due > gap) {
                    due = stamp;
                }
            } else {
                stamp = due;
            }
            send(channel, message, stamp);
            due += gap;
        }
    }

    private static void sendFlat(Channel channel, byte[] message, double seconds) {
        long until = System.nanoTime() + Math.round(seconds * 1e9);
        while (System.nanoTime() < until) {
            send(channel, message, 0);
        }
        send(channel, message, STAMP_END);
    }

    // Lines from the parent: "connect PORT" once, then "paced SIZE RATE WARM COUNT" or "flat SIZE SECONDS".
    public static void main(String[] arguments) throws Exception {
        boolean receiving = arguments[0].equals("receive");
        epoll = arguments[1].equals("epoll");
        writer = Thread.currentThread();
        Channel channel = null;
        if (receiving) {
            System.out.println("{\"port\": " + ((InetSocketAddress) listen().localAddress()).getPort() + "}");
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("connect")) {
                channel = connect(Integer.parseInt(words[1]));
                System.out.println("{}");
            } else if (receiving) {
                boolean flat = words[0].equals("flat");
                counter = flat ? new Counter(0, 0, true)
                        : new Counter(Integer.parseInt(words[3]), Integer.parseInt(words[4]), false);
                System.out.println("{}");
                boolean all = counter.done.await(CASE_SECONDS_MAX, TimeUnit.SECONDS);
                System.out.println(all ? counter.json() : "{\"failure\": \"not everything arrived\"}");
            } else {
                byte[] message = new byte[Integer.parseInt(words[1])];
                if (words[0].equals("flat")) {
                    sendFlat(channel, message, Double.parseDouble(words[2]));
                } else {
                    int count = Integer.parseInt(words[3]) + Integer.parseInt(words[4]);
                    sendPaced(channel, message, Double.parseDouble(words[2]), count);
                }
                System.out.println("{}");
            }
        }
        System.exit(0);
    }
}
